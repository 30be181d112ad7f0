//! A test that cannot fail is none: NICs with a defect each, and the topic of the suite that finds it.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use uvia_driver::Result;
use uvia_driver::nic::{Link, Nic, NicConfig, NicProperties, NicStatistics, RxFilter, RxFrame, TxFrame};
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::bench::{InProcess, Served};
use uvia_tests::conformance::topics::*;
use uvia_tests::conformance::{Bench, Effort, Line, Opened, run};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    PropertiesChange,
    InterruptsUnasked,
    TakesWhatIsTooLong,
    OneSizeDamaged,
    LongestCut,
    LimitIgnored,
    BoundsIgnored,
    OddPartsSwapped,
    DoorbellForEach,
    TokenLost,
    TokenTwice,
    FullRingSwallows,
    FrameLost,
    FrameCountedTwice,
    BytesWithHeader,
    FilterIgnored,
    AlwaysAwake,
    NeverDisarmed,
    ArmsLate,
    ResetLosesTokens,
    ResetDeafens,
    NotQuiesced,
    LeaksNow,
    LinkAlwaysUp,
    ErrorsHidden,
    SystemCall,
}

/// A NIC with a defect.
struct Broken {
    /// `None` only while it is dropped.
    nic: Option<Box<dyn Nic>>,
    defect: Defect,
    properties: NicProperties,
    frames: u64,
    deaf: bool,
    arming: bool,
    swallowed: Vec<u64>,
}

impl Broken {
    fn nic(&mut self) -> &mut dyn Nic {
        &mut **self.nic.as_mut().expect("it is not dropped yet")
    }

    /// With errors as they are, or as nothing.
    fn or<T>(&self, outcome: Result<T>, nothing: T) -> Result<T> {
        if self.defect == Defect::ErrorsHidden { Ok(outcome.unwrap_or(nothing)) } else { outcome }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let leaks = match self.defect {
            Defect::NotQuiesced => self.frames > 10,
            Defect::LeaksNow => true,
            _ => false,
        };
        if leaks {
            std::mem::forget(self.nic.take());
        }
    }
}

impl Nic for Broken {
    fn properties(&self) -> &NicProperties {
        &self.properties
    }

    fn link(&mut self) -> Result<Link> {
        let outcome = self.nic().link();
        let link = self.or(outcome, Link { up: true, speed: None, full_duplex: None })?;
        Ok(Link { up: link.up || self.defect == Defect::LinkAlwaysUp, ..link })
    }

    fn ready(&mut self) -> Result<bool> {
        if self.defect == Defect::PropertiesChange {
            self.properties.mtu += 1;
        }
        let outcome = self.nic().ready();
        self.or(outcome, true)
    }

    fn transmit(&mut self, frame: &TxFrame<'_>) -> Result<bool> {
        self.frames += 1;
        let mut segments = frame.segments.to_vec();
        if self.defect == Defect::OddPartsSwapped
            && segments.len() > 2
            && segments[0].len() != segments[1].len()
        {
            segments.swap(0, 1);
        }
        let outcome = self.nic().transmit(&TxFrame { segments: &segments, token: frame.token });
        let taken = match (self.defect, outcome) {
            (Defect::TakesWhatIsTooLong, Err(_)) => true,
            (Defect::FullRingSwallows, Ok(false)) => {
                self.swallowed.push(frame.token);
                true
            }
            (_, outcome) => self.or(outcome, true)?,
        };
        if self.defect == Defect::DoorbellForEach {
            self.nic().flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> Result<()> {
        let outcome = self.nic().flush();
        self.or(outcome, ())
    }

    fn reclaim(&mut self, done: &mut dyn FnMut(u64)) -> Result<usize> {
        let (defect, mut seen) = (self.defect, 0u64);
        let before = self.frames;
        let mut extra = 0;
        for token in self.swallowed.drain(..) {
            done(token);
            extra += 1;
        }
        let outcome = self.nic().reclaim(&mut |token| {
            seen += 1;
            match defect {
                Defect::TokenLost if before > 500 && seen == 3 => {}
                Defect::TokenTwice if seen == 5 => {
                    done(token);
                    done(token);
                }
                _ => done(token),
            }
        });
        Ok(self.or(outcome, 0)? + extra)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> Result<usize> {
        let (defect, deaf, longest) = (self.defect, self.deaf, self.properties.max_frame);
        if defect == Defect::SystemCall {
            std::thread::yield_now();
        }
        let mut seen = 0;
        let outcome = self.nic().receive(budget, &mut |frame| {
            seen += 1;
            let mut bytes = vec![0; frame.len()];
            assert!(frame.read(0, &mut bytes));
            match defect {
                Defect::OneSizeDamaged if bytes.len() == 777 => bytes[776] ^= 1,
                Defect::LongestCut if bytes.len() == longest => bytes.truncate(longest - 1),
                Defect::FrameLost if seen % 50 == 49 => return,
                Defect::ResetDeafens if deaf => return,
                _ => {}
            }
            sink(RxFrame::from_slice(&bytes));
        });
        if std::mem::take(&mut self.arming) {
            // After the last look: what came in between wakes nobody.
            std::thread::sleep(Duration::from_micros(300));
            self.nic().arm(true)?;
        }
        let count = self.or(outcome, 0)?;
        Ok(match defect {
            Defect::FrameLost => count - count / 50,
            Defect::ResetDeafens if deaf => 0,
            _ => count,
        })
    }

    fn statistics(&mut self) -> NicStatistics {
        let statistics = self.nic().statistics();
        match self.defect {
            Defect::FrameCountedTwice if statistics.rx_frames > 10 => {
                NicStatistics { rx_frames: statistics.rx_frames + statistics.rx_frames / 10, ..statistics }
            }
            Defect::BytesWithHeader => {
                NicStatistics { tx_bytes: statistics.tx_bytes + 4 * statistics.tx_frames, ..statistics }
            }
            _ => statistics,
        }
    }

    fn set_filter(&mut self, filter: RxFilter) -> Result<()> {
        if self.defect == Defect::FilterIgnored {
            return Ok(());
        }
        let outcome = self.nic().set_filter(filter);
        self.or(outcome, ())
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.nic.as_ref()?.interrupt()
    }

    fn arm(&mut self, on: bool) -> Result<()> {
        let on = on || self.defect == Defect::NeverDisarmed;
        if self.defect == Defect::ArmsLate {
            self.arming = on;
            return Ok(());
        }
        let outcome = self.nic().arm(on);
        if on && self.defect == Defect::AlwaysAwake {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&self.nic().interrupt().expect("it has interrupts"));
            let one = 1u64;
            // SAFETY: writes 8 bytes from a local to a descriptor that is open.
            unsafe { libc::write(fd, (&raw const one).cast(), 8) };
        }
        self.or(outcome, ())
    }

    fn reset(&mut self) -> Result<()> {
        let outcome = self.nic().reset();
        self.or(outcome, ())?;
        match self.defect {
            Defect::ResetLosesTokens => drop(self.nic().reclaim(&mut |_| ())?),
            Defect::ResetDeafens => self.deaf = true,
            _ => {}
        }
        Ok(())
    }
}

/// A bench whose NICs have a defect.
struct Workshop<B> {
    bench: B,
    defect: Defect,
}

impl<B: Bench> Bench for Workshop<B> {
    fn effort(&self) -> Effort {
        Effort::Quick
    }

    fn open(&self, config: &NicConfig) -> Result<[Opened; 2]> {
        let always = NicConfig { interrupts: true, ..config.clone() };
        let unlimited = NicConfig { max_frame: None, ..config.clone() };
        let outside = config.max_frame.is_some_and(|bytes| !NicConfig::FRAMES.contains(&bytes));
        let config = match self.defect {
            Defect::InterruptsUnasked => &always,
            Defect::LimitIgnored => &unlimited,
            Defect::BoundsIgnored if outside => &unlimited,
            _ => config,
        };
        Ok(self.bench.open(config)?.map(|opened| {
            let properties = opened.nic.properties().clone();
            let nic = Broken {
                nic: Some(opened.nic),
                defect: self.defect,
                properties,
                frames: 0,
                deaf: false,
                arming: false,
                swallowed: Vec::new(),
            };
            Opened { nic: Box::new(nic), domain: opened.domain }
        }))
    }

    fn cable(&self, end: usize, line: Line) {
        self.bench.cable(end, line);
    }

    fn remove(&self, end: usize) {
        self.bench.remove(end);
    }

    fn dropped(&self, end: usize) -> Option<u64> {
        self.bench.dropped(end)
    }

    fn stray(&self) -> Option<u64> {
        self.bench.stray()
    }

    fn mapped(&self) -> Option<usize> {
        self.bench.mapped()
    }
}

/// Whether a topic finds something wrong.
fn finds(bench: impl Bench, defect: Defect, topic: fn(&dyn Bench)) -> bool {
    let workshop = Workshop { bench, defect };
    catch_unwind(AssertUnwindSafe(|| run(&workshop, topic))).is_err()
}

macro_rules! found {
    ($($test:ident: $defect:ident by $($topic:ident)::+;)*) => {
        $(#[test]
        fn $test() {
            let topic = $($topic)::+;
            let bench = || InProcess::new([Kind::E1000, Kind::Virtio]);
            assert!(!finds(bench(), Defect::None, topic), "NICs without a defect pass");
            assert!(finds(bench(), Defect::$defect, topic), "it does not find {:?}", Defect::$defect);
        })*
    };
}

found! {
    comes_up: PropertiesChange by bring_up::comes_up;
    rings_of_any_size: InterruptsUnasked by bring_up::takes_rings_of_any_size;
    refusals_are_missed: TakesWhatIsTooLong by refusals::what_cannot_be_sent_is_refused;
    bounds: BoundsIgnored by refusals::limits_out_of_bounds_are_named;
    one_size: OneSizeDamaged by sizes::every_size_arrives_whole;
    the_longest: LongestCut by sizes::the_longest_fill_every_buffer;
    a_limit_ignored: LimitIgnored by sizes::no_longer_than_was_asked_for;
    swapped_parts: OddPartsSwapped by gather::odd_splits_arrive_whole;
    too_many_doorbells: DoorbellForEach by bursts::bursts_of_all_lengths_cost_one_doorbell;
    a_token_lost_late: TokenLost by laps::many_laps_of_odd_rings;
    a_token_twice: TokenTwice by full_ring::every_token_comes_back_once;
    a_full_ring_that_takes_more: FullRingSwallows by full_ring::says_so_and_loses_nothing;
    one_frame_lost: FrameLost by empty_pool::what_there_are_buffers_for_waits;
    a_flood_miscounted: FrameCountedTwice by empty_pool::a_flood_is_counted_or_lost_and_gone_afterwards;
    bytes_that_were_not_sent: BytesWithHeader by statistics::counters_add_up;
    no_filter: FilterIgnored by filters::frames_for_others_come_only_when_asked_for;
    woken_disarmed: NeverDisarmed by interrupts::nobody_is_woken_who_is_not_armed;
    a_wake_up_lost: ArmsLate by interrupts::nothing_is_lost_between_arming_and_sleeping;
    woken_twice: AlwaysAwake by interrupts::a_sleeper_is_woken_once;
    tokens_that_a_reset_loses: ResetLosesTokens by reset::in_the_middle_of_traffic;
    deaf_after_a_reset: ResetDeafens by reset::of_the_receiver;
    not_quiesced: NotQuiesced by close::with_frames_in_flight;
    not_closed: LeaksNow by close::opens_and_closes_again_and_again;
    no_link_change: LinkAlwaysUp by link::goes_and_comes;
    removal_hidden: ErrorsHidden by removal::ends_in_errors_and_harms_nothing;
}

#[test]
fn a_system_call_on_the_polled_path() {
    let bench = || Served::new([Kind::Virtio; 2], Doorbells::Polled);
    assert!(!finds(bench(), Defect::None, polled::makes_no_system_call));
    assert!(finds(bench(), Defect::SystemCall, polled::makes_no_system_call));
}
