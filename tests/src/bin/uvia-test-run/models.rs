//! Our models as NICs of guests, by vfio-user and a QEMU that nobody here wrote: under Linux's drivers, and then
//! under ours, with the tests that QEMU's NICs pass.

use std::time::Duration;

use uvia_vm::{NicKind, Session, Settings};

use crate::build::Program;
use crate::jobs::Job;
use crate::report::{Failure, Report, Verdict};
use crate::{Options, booted, guests, tools};

/// Under Linux's drivers.
const KERNEL: &[&[NicKind]] = &[&[NicKind::ModelE1000], &[NicKind::ModelVirtio]];
/// And where there is time: with packed rings, and with a NIC of QEMU's.
const KERNEL_LONG: &[&[NicKind]] = &[&[NicKind::ModelVirtioPacked], &[NicKind::ModelE1000, NicKind::E1000]];
/// Under ours.
const OURS: &[&[NicKind]] = &[&[NicKind::ModelE1000], &[NicKind::ModelVirtio]];

/// All of them.
pub fn jobs<'a>(report: &mut Report, programs: &'a [Program], options: &'a Options) -> Vec<Job<'a>> {
    let mut jobs = guests::jobs(report, programs, options, OURS);
    let more = if options.long { KERNEL_LONG } else { &[] };
    jobs.extend(KERNEL.iter().chain(more).map(|nics| under_linux(programs, options, nics)));
    let more = options.long.then_some(NicKind::ModelE1000);
    jobs.extend([NicKind::ModelVirtio].into_iter().chain(more).map(|kind| outages(programs, options, kind)));
    jobs.push(Job::new(BETWEEN_GUESTS, 20, |report| between_guests(report, options)));
    jobs
}

fn under_linux<'a>(programs: &'a [Program], options: &'a Options, nics: &'static [NicKind]) -> Job<'a> {
    let label = format!("{} under Linux", guests::label(nics));
    let seconds = if nics.contains(&NicKind::ModelE1000) { 120 } else { 52 };
    Job::new(&format!("in a guest: {label}"), seconds, move |report| {
        run_programs(report, options, &label, nics, &guests::called(programs, "kernel_"), Vec::new());
    })
}

/// Models whose link comes and goes.
fn outages<'a>(programs: &'a [Program], options: &'a Options, kind: NicKind) -> Job<'a> {
    let label = format!("{kind} with outages under Linux");
    Job::new(&format!("in a guest: {label}"), 47, move |report| {
        let faults = std::env::temp_dir().join(format!("uvia-outages-{}-{kind}", std::process::id()));
        let rules: String = (1..60).map(|n| format!("nic 0 link down at {}s for 6s\n", n * 20)).collect();
        if let Err(e) = std::fs::write(&faults, rules) {
            return report.failed("writing a file of faults", &format!("{}: {e}", faults.display()));
        }
        let args = vec!["--faults".to_owned(), faults.display().to_string()];
        run_programs(report, options, &label, &[kind], &guests::called(programs, "outage_"), args);
        // It is in the system's folder for what is temporary: one that stays there does no harm.
        let _ = std::fs::remove_file(faults);
    })
}

fn run_programs(
    report: &mut Report,
    options: &Options,
    label: &str,
    nics: &[NicKind],
    programs: &[&Program],
    device_args: Vec<String>,
) {
    if programs.is_empty() {
        return report.failed(label, "there is no test program for it");
    }
    let settings = Settings {
        nics: nics.to_vec(),
        attach: false,
        carry: programs.iter().map(|program| program.path.clone()).collect(),
        keep_log: options.keep_log.as_ref().map(|dir| dir.join(label.replace(' ', "-"))),
        device_args,
        ..Settings::default()
    };
    booted::with(report, label, &settings, |report, session| {
        for program in programs {
            guests::run_program(report, session.guest(), label, program);
        }
        if let Some(why) = session.devices_failure() {
            report.failed(label, &why.to_string());
        }
    });
}

/// The switch joins guests, too.
const BETWEEN_GUESTS: &str = "model-virtio to model-e1000, two guests";

fn between_guests(report: &mut Report, options: &Options) {
    let settings = Settings {
        guests: 2,
        nics: vec![NicKind::ModelVirtio, NicKind::ModelE1000],
        keep_log: options.keep_log.as_ref().map(|dir| dir.join("models-two-guests")),
        ..Settings::default()
    };
    booted::with(report, BETWEEN_GUESTS, &settings, |report, session| {
        report.case("two guests: a copy between models arrives whole", || copies(session));
    });
}

fn copies(session: &Session) -> Result<Verdict, Failure> {
    let [to, from] = session.guests() else { return Err("there are not two guests".into()) };
    let listen = "mkdir /tmp/in; exec uvia-cp --listen /tmp/in --once --nic $UVIA_NIC_A --name b";
    let listener = to.spawn(uvia_vm::Task::new(["sh", "-c", listen]))?;
    let sent = tools::shell_ok(
        from,
        "head -c 3000001 /dev/urandom > /tmp/file; \
         uvia-cp /tmp/file b:copy --nic $UVIA_NIC_A --name a >&2; sha256sum < /tmp/file",
    )?;
    let received = listener.wait(Some(Duration::from_secs(60)))?;
    let there = tools::shell_ok(to, "sha256sum < /tmp/in/copy")?;
    if !received.status.success() || sent != there {
        return Err(format!("{received:?}\n{sent}\n{there}").into());
    }
    Ok(Verdict::Passed)
}
