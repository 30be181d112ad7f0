//! The ways to wait for completions without looking, and to hear of errors: handlers, file descriptors, tasks.

use std::future::Future;
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use uvia::{
    AsyncError, Awaited, Completion, CompletionQueue, Completions, Descriptor, Error, ErrorCode,
    ErrorResource, Nic, NicOptions, Progress, Sleeper, Status, ViAttributes, ViState, WorkQueue,
};
use uvia_models::machine::Kind;
use uvia_models::serve::Doorbells;
use uvia_tests::{End, PATIENCE, ServedModels, ViPair, join, memory_pair};

/// Two ends that drive themselves.
fn pair() -> ViPair {
    let (a, b, domain) = memory_pair();
    let open = |adapter, name: &str| {
        let options =
            NicOptions { name: Some(name.to_owned()), progress: Progress::Thread, ..NicOptions::default() };
        Nic::with_adapter(adapter, domain.clone(), options).unwrap()
    };
    let (a, b) = (End::new(open(a, "a"), |_| ()).unwrap(), End::new(open(b, "b"), |_| ()).unwrap());
    join(&a, &b, b"there").unwrap();
    ViPair { a, b }
}

fn post_receive(end: &End) {
    end.vi.post_receive(Descriptor::new(vec![])).unwrap();
}

/// Sends an empty message, and waits until it is sent; `mark` comes with it.
fn send(end: &End, mark: u32) {
    let mut descriptor = Descriptor::new(vec![]);
    descriptor.immediate = Some(mark);
    end.vi.post_send(descriptor).unwrap();
    let done = end.cq.wait(PATIENCE).unwrap().expect("it is sent");
    assert!(done.queue == WorkQueue::Send && done.descriptor.status().is_success());
}

type Handler = Box<dyn FnOnce(Completion) + Send>;

/// A handler that tells of the mark that it was called with.
fn telling() -> (impl Fn() -> Handler, Receiver<Option<u32>>) {
    let (tell, told) = channel();
    let handler = move || {
        let tell = tell.clone();
        Box::new(move |completion: Completion| tell.send(completion.descriptor.immediate).unwrap()) as Handler
    };
    (handler, told)
}

#[test]
fn a_handler_is_called_once_a_registration_in_order_and_at_once_for_what_is_there() {
    let ViPair { a, b } = pair();
    let (handler, told) = telling();
    (0..6).for_each(|_| post_receive(&b));
    // Registered before: each gets one.
    b.cq.notify(handler()).unwrap();
    b.cq.notify(handler()).unwrap();
    (1..=3).for_each(|mark| send(&a, mark));
    assert_eq!([(); 2].map(|()| told.recv_timeout(PATIENCE).unwrap()), [Some(1), Some(2)]);
    // The third is there when the next is registered, or comes to it.
    b.cq.notify(handler()).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Some(3));
    // Nobody is registered: what comes is for who looks.
    send(&a, 4);
    let got = b.cq.wait(PATIENCE).unwrap().expect("a completion");
    assert_eq!(got.descriptor.immediate, Some(4));
    assert_eq!(told.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
    // Entries and credits are counted back: the whole depth can be posted again.
    send(&a, 5);
    send(&a, 6);
    for mark in [5, 6] {
        assert_eq!(b.cq.wait(PATIENCE).unwrap().unwrap().descriptor.immediate, Some(mark));
    }
    assert_eq!(b.vi.outstanding(WorkQueue::Receive), 0);
    (0..b.vi.attributes().receive_depth).for_each(|_| post_receive(&b));
}

#[test]
fn a_handler_may_call_anything_and_register_again() {
    const MESSAGES: u32 = 200;
    let ViPair { a, b } = pair();
    (0..8).for_each(|_| post_receive(&b));
    let b = Arc::new(b);
    let (tell, told) = channel();
    /// Posts the receive again, answers, waits for that, and goes on.
    fn echo(b: &Weak<End>, tell: std::sync::mpsc::Sender<u32>) {
        let Some(end) = b.upgrade() else { return };
        let mine = b.clone();
        end.cq
            .clone()
            .notify(move |completion| {
                let Some(end) = mine.upgrade() else { return };
                if completion.queue == WorkQueue::Receive {
                    let mark = completion.descriptor.immediate.unwrap();
                    assert_eq!(end.vi.state(), ViState::Connected);
                    end.vi.post_receive(completion.descriptor).unwrap();
                    tell.send(mark).unwrap();
                }
                echo(&mine, tell);
            })
            .unwrap();
    }
    echo(&Arc::downgrade(&b), tell);
    for mark in 0..MESSAGES {
        send(&a, mark);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), mark);
    }
    // The handler that waits goes with the queue, and what it owns with it: the other end of the channel is closed.
    drop(b);
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn work_queues_have_handlers_of_their_own_unless_they_are_tied() {
    let (a, b, domain) = memory_pair();
    let a = Nic::with_adapter(a, domain.clone(), NicOptions::default()).unwrap();
    let _b = Nic::with_adapter(b, domain, NicOptions::default()).unwrap();
    let tag = a.create_tag().unwrap();
    let cq = a.create_cq(128).unwrap();
    let vi = a.create_vi(&ViAttributes::new(tag), None, Some(&cq)).unwrap();
    let (handler, told) = telling();
    assert!(matches!(vi.notify(WorkQueue::Receive, handler()), Err(Error::Parameter(_))));
    vi.notify(WorkQueue::Send, handler()).unwrap();
    // In Idle it comes back flushed.
    let mut descriptor = Descriptor::new(vec![]);
    descriptor.immediate = Some(9);
    vi.post_send(descriptor).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Some(9));
    // Cancelled with its interface.
    vi.notify(WorkQueue::Send, handler()).unwrap();
    drop(handler);
    drop(vi);
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn a_handler_that_panics_does_not_take_others_with_it() {
    let ViPair { a, b } = pair();
    let (handler, told) = telling();
    (0..2).for_each(|_| post_receive(&b));
    b.cq.notify(|_| panic!("a handler of a test panics")).unwrap();
    b.cq.notify(handler()).unwrap();
    (1..=2).for_each(|mark| send(&a, mark));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Some(2));
}

/// A task that gives up before anything has come is not kept until something does, and others go on waiting.
#[test]
fn a_task_that_gives_up_is_let_go_of() {
    let ViPair { a, b } = pair();
    post_receive(&b);
    let task = || Arc::new(Unpark(thread::current()));
    let [one, other] = [task(), task()];
    let wakers = [&one, &other].map(|task| Waker::from(task.clone()));
    let holds = || [&one, &other].map(Arc::strong_count);
    let mut stays = pin!(b.cq.next());
    for waker in &wakers {
        // The task that asked last is the one that is woken.
        assert!(stays.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert_eq!(holds(), [2, 3]);
    for _ in 0..3 {
        let mut gives_up = pin!(b.cq.next());
        assert!(gives_up.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
        assert!(gives_up.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
        assert_eq!(holds(), [2, 4], "once for each that waits");
    }
    assert_eq!(holds(), [2, 3]);
    send(&a, 8);
    thread::park_timeout(PATIENCE);
    match stays.as_mut().poll(&mut Context::from_waker(&wakers[1])) {
        Poll::Ready(got) => assert_eq!(got.unwrap().descriptor.immediate, Some(8)),
        Poll::Pending => panic!("it was woken for nothing"),
    }
}

/// Who wants to wait for ever may say so by the longest time that there is.
#[test]
fn the_longest_time_is_a_time_too() {
    let ViPair { a, b } = pair();
    post_receive(&b);
    let sleeper = Sleeper::new().unwrap();
    thread::scope(|scope| {
        let slept = scope.spawn(|| {
            let ready = |_| b.cq.poll_patiently();
            let got = sleeper.wait(Awaited::Completions(&b.cq), Duration::MAX, ready).unwrap();
            got.expect("it waits for ever").descriptor.immediate
        });
        thread::sleep(Duration::from_millis(20));
        send(&a, 1);
        assert_eq!(slept.join().unwrap(), Some(1));
        sleeper.wake();
        sleeper.sleep(Duration::MAX).unwrap();
    });
    let [one, two] = [&a, &b].map(|end| End::new(end.nic.clone(), |_| ()).unwrap());
    let there = |end: &End, name: &[u8]| uvia::NetAddress::new(end.nic.properties().mac, name).unwrap();
    assert_eq!(a.nic.resolve("b", Duration::MAX).unwrap(), b.nic.properties().mac);
    thread::scope(|scope| {
        let listener = two.nic.listen(b"ever", 1).unwrap();
        let asks = scope.spawn(|| one.vi.connect(&there(&two, b"ever"), Duration::MAX, &[]).map(drop));
        let request = listener.wait(Duration::MAX).unwrap().expect("it waits for ever");
        request.accept(&two.vi, &[]).map_err(|(_, e)| e).unwrap();
        asks.join().unwrap().unwrap();
    });
    one.vi.disconnect().unwrap();
    let left = two.nic.wait_for(PATIENCE, |_| Ok((two.vi.state() == ViState::Error).then_some(()))).unwrap();
    assert!(left.is_some());
    two.vi.disconnect().unwrap();
    thread::scope(|scope| {
        let meets = scope.spawn(|| one.vi.connect_peer(b"l", &there(&two, b"r"), Duration::MAX).map(drop));
        two.vi.connect_peer(b"r", &there(&one, b"l"), Duration::MAX).unwrap();
        meets.join().unwrap().unwrap();
    });
}

fn readable(event: &impl AsRawFd, timeout: Duration) -> bool {
    let mut entry = libc::pollfd { fd: event.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry of ours, with a file descriptor that is open.
    unsafe { libc::poll(&raw mut entry, 1, timeout.as_millis() as i32) == 1 }
}

#[test]
fn a_file_descriptor_is_signalled_once_for_each_time_that_it_is_armed() {
    let ViPair { a, b } = pair();
    (0..5).for_each(|_| post_receive(&b));
    let event = b.cq.event().unwrap();
    // Not armed: not signalled.
    send(&a, 1);
    assert_eq!(b.cq.wait(PATIENCE).unwrap().unwrap().descriptor.immediate, Some(1));
    assert!(!readable(&event, Duration::ZERO) && !event.consume().unwrap());
    // Armed: signalled by the next, and readable until consumed.
    assert!(event.arm().unwrap());
    assert!(!readable(&event, Duration::ZERO));
    send(&a, 2);
    assert!(readable(&event, PATIENCE) && readable(&event, Duration::ZERO));
    assert!(event.consume().unwrap() && !readable(&event, Duration::ZERO));
    // Nothing can be armed while there is something.
    assert!(!event.arm().unwrap());
    assert_eq!(b.cq.poll().unwrap().map(|completion| completion.descriptor.immediate), Some(Some(2)));
    // One signal for what is armed once.
    assert!(event.arm().unwrap());
    (3..=4).for_each(|mark| send(&a, mark));
    assert!(readable(&event, PATIENCE) && event.consume().unwrap());
    let mut batch = Completions::with_capacity(4);
    let mut marks = Vec::new();
    while marks.len() < 2 {
        b.cq.poll_into(&mut batch).unwrap();
        marks.extend(std::iter::from_fn(|| batch.pop()).map(|completion| completion.descriptor.immediate));
    }
    assert_eq!(marks, [Some(3), Some(4)]);
    assert!(!readable(&event, Duration::ZERO));
}

/// A queue that somebody sleeps at is polled by another thread, one by one and in batches: nothing is lost or overtaken.
#[test]
fn a_watched_queue_gives_all_it_has_in_order_to_whoever_polls() {
    const MESSAGES: u32 = 500;
    let ViPair { a, b } = pair();
    (0..b.vi.attributes().receive_depth).for_each(|_| post_receive(&b));
    let event = b.cq.event().unwrap();
    thread::scope(|scope| {
        // A message for each receive that is posted: one that finds none would break the connection, and on a busy
        // machine the sender may run far ahead.
        let (posted, room) = channel();
        (0..b.vi.attributes().receive_depth).for_each(|_| posted.send(()).unwrap());
        let sender = scope.spawn(move || {
            for mark in 0..MESSAGES {
                room.recv().unwrap();
                send(&a, mark);
            }
            a
        });
        let mut batch = Completions::with_capacity(3);
        let mut next = 0;
        let mut take = |completion: Completion| {
            assert_eq!(completion.descriptor.immediate, Some(next));
            next += 1;
            b.vi.post_receive(completion.descriptor).unwrap();
            // The last ones are nobody's.
            let _ = posted.send(());
            next
        };
        let mut done = 0;
        while done < MESSAGES {
            event.arm().unwrap();
            b.cq.poll_into(&mut batch).unwrap();
            while let Some(completion) = batch.pop() {
                done = take(completion);
            }
            if let Some(completion) = b.cq.poll().unwrap() {
                done = take(completion);
            }
        }
        drop(sender.join().unwrap());
    });
}

/// Wakes a thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
    }
}

#[test]
fn a_task_awaits_completions() {
    let ViPair { a, b } = pair();
    (0..100).for_each(|_| post_receive(&b));
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            (0..100).for_each(|mark| send(&a, mark));
            a
        });
        block_on(async {
            // One that is dropped takes nothing with it.
            drop(b.cq.next());
            for mark in 0..100 {
                assert_eq!(b.cq.next().await.unwrap().descriptor.immediate, Some(mark));
            }
        });
        drop(sender.join().unwrap());
    });
}

#[test]
fn a_queue_is_resized_and_loses_nothing() {
    let ViPair { a, b } = pair();
    let depth = b.vi.attributes().receive_depth;
    let both = depth + b.vi.attributes().send_depth;
    assert_eq!((b.cq.capacity(), b.cq.promised()), (both, both));
    (0..40).for_each(|_| post_receive(&b));
    (0..20).for_each(|mark| send(&a, mark));
    // The last has come; it stays in the queue.
    while b.vi.outstanding(WorkQueue::Receive) != 40 {
        thread::yield_now();
    }
    assert!(matches!(b.cq.resize(both - 1), Err(Error::Promised { promised }) if promised == both));
    assert!(matches!(b.cq.resize(0), Err(Error::Parameter(_))));
    let most = b.nic.properties().max_cq_entries;
    assert!(matches!(b.cq.resize(most + 1), Err(Error::Resource { .. })));
    b.cq.resize(both + 10).unwrap();
    assert_eq!(b.cq.capacity(), both + 10);
    // There is room for one more interface now, and for no other.
    let small = ViAttributes { send_depth: 5, receive_depth: 5, ..b.vi.attributes() };
    let more = b.nic.create_vi(&small, Some(&b.cq), Some(&b.cq)).unwrap();
    assert!(matches!(b.nic.create_vi(&small, Some(&b.cq), None), Err(Error::Resource { .. })));
    assert!(matches!(b.cq.resize(both + 9), Err(Error::Promised { .. })));
    drop(more);
    b.cq.resize(both).unwrap();
    let event = b.cq.event().unwrap();
    (20..40).for_each(|mark| send(&a, mark));
    for mark in 0..40 {
        if mark == 10 {
            // Also while somebody waits for it.
            assert!(!event.arm().unwrap());
            b.cq.resize(both + 1).unwrap();
        }
        let got = b.cq.wait(PATIENCE).unwrap().expect("a completion");
        assert_eq!(got.descriptor.immediate, Some(mark));
    }
    assert!(event.arm().unwrap());
    b.cq.resize(both).unwrap();
    post_receive(&b);
    send(&a, 99);
    assert!(readable(&event, PATIENCE));
    assert_eq!(b.cq.poll().unwrap().unwrap().descriptor.immediate, Some(99));
}

/// A handler of errors, and what it is told.
fn errors(nic: &Nic) -> Receiver<AsyncError> {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    nic.set_error_handler(move |error| {
        let _ = tell.lock().unwrap().send(*error);
    })
    .unwrap();
    told
}

#[test]
fn a_lost_connection_is_told_to_the_handler_of_whose_interface_it_was() {
    let ViPair { a, b } = pair();
    let second = b.nic.open_again();
    let (first_told, second_told) = (errors(&b.nic), errors(&second));
    let id = b.vi.id();
    // The handler may call anything, and sees what has become of the interface.
    let (tell, told) = channel();
    let (tell, b) = (Mutex::new(tell), Arc::new(b));
    let weak = Arc::downgrade(&b);
    a.vi.disconnect().unwrap();
    let error = first_told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(error, AsyncError { code: ErrorCode::ConnectionLost, resource: ErrorResource::Vi(id) });
    assert!(error.to_string().contains("lost"));
    b.nic
        .set_error_handler(move |_| {
            let end = weak.upgrade().unwrap();
            tell.lock().unwrap().send((end.vi.state(), end.vi.loss())).unwrap();
        })
        .unwrap();
    b.vi.disconnect().unwrap();
    join(&a, &b, b"again").unwrap();
    a.vi.disconnect().unwrap();
    let lost = Some(uvia::ConnectionLoss::PeerDisconnected);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), (ViState::Error, lost));
    // Back to the default: nobody hears of the next.
    b.nic.clear_error_handler();
    b.vi.disconnect().unwrap();
    join(&a, &b, b"again").unwrap();
    a.vi.disconnect().unwrap();
    while b.vi.state() != ViState::Error {
        thread::yield_now();
    }
    assert_eq!(told.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    assert_eq!(second_told.try_recv().ok(), None, "its interfaces are well: it has none");
}

#[test]
fn an_empty_receive_queue_and_a_refused_write_are_told_at_the_target() {
    let ViPair { a, b } = pair();
    let told = errors(&b.nic);
    a.vi.post_send(Descriptor::new(vec![])).unwrap();
    let codes = || [(); 2].map(|()| told.recv_timeout(PATIENCE).unwrap().code);
    assert_eq!(codes(), [ErrorCode::ReceiveQueueEmpty, ErrorCode::ConnectionLost]);
    let status = a.cq.wait(PATIENCE).unwrap().unwrap().descriptor.status();
    assert!(status.contains(Status::REMOTE_DESCRIPTOR_ERROR), "{status:?}");
    [&a, &b].iter().for_each(|end| end.vi.disconnect().unwrap());
    join(&a, &b, b"again").unwrap();
    let memory = a.memory(10).unwrap();
    let target = b.nic.allocate(10, uvia::MemoryAttributes::local(b.tag)).unwrap();
    a.vi.post_send(Descriptor::rdma_write(vec![memory.whole()], target.remote(0).unwrap())).unwrap();
    assert_eq!(codes(), [ErrorCode::RdmaWriteProtection, ErrorCode::ConnectionLost]);
}

#[test]
fn what_a_layer_above_raises_is_told_once_until_it_was_told() {
    // The other end stays: that it leaves is an error too.
    let ViPair { a, b: _b } = pair();
    let error = AsyncError { code: ErrorCode::PostDescriptor, resource: ErrorResource::Vi(a.vi.id()) };
    let (started, begun) = channel();
    let (tell, told) = channel();
    let (go, gate) = channel::<()>();
    let inside = Mutex::new((started, gate, tell));
    a.nic
        .set_error_handler(move |error| {
            let (started, gate, tell) = &*inside.lock().unwrap();
            started.send(()).unwrap();
            gate.recv_timeout(PATIENCE).unwrap();
            tell.send(*error).unwrap();
        })
        .unwrap();
    a.nic.raise(error);
    begun.recv_timeout(PATIENCE).unwrap();
    // While the first is told, the next ones gather.
    (0..10).for_each(|_| a.nic.raise(error));
    (0..11).for_each(|_| go.send(()).unwrap());
    (0..2).for_each(|_| assert_eq!(told.recv_timeout(PATIENCE).unwrap(), error));
    assert_eq!(told.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
}

#[test]
fn an_adapter_that_is_gone_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let models = ServedModels::start(folder.path(), &[Kind::ALL[0]], Doorbells::Polled);
    let options = NicOptions { progress: Progress::Thread, ..NicOptions::default() };
    let nic = Nic::open(&models.names()[0], options).unwrap();
    let again = nic.open_again();
    let (told, told_too) = (errors(&nic), errors(&again));
    // The program does nothing: its thread finds out.
    drop(models);
    for told in [told, told_too] {
        let error = AsyncError { code: ErrorCode::Catastrophic, resource: ErrorResource::Nic };
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), error);
        assert!(told.recv_timeout(Duration::from_millis(400)).is_err(), "it lasts, and is told once");
    }
    assert!(nic.poll().is_err());
}

#[test]
fn whoever_lets_go_last_closes_the_nic_before_the_drop_returns() {
    for _ in 0..30 {
        let (a, b, domain) = memory_pair();
        let options = NicOptions { progress: Progress::Thread, ..NicOptions::default() };
        let a = Nic::with_adapter(a, domain.clone(), options).unwrap();
        let _b = Nic::with_adapter(b, domain.clone(), NicOptions::default()).unwrap();
        let mapped = domain.mapped();
        let tag = a.create_tag().unwrap();
        let cq: CompletionQueue = a.create_cq(1).unwrap();
        let region = a.allocate(1, uvia::MemoryAttributes::local(tag)).unwrap();
        cq.notify(|_| ()).unwrap();
        a.set_error_handler(|_| ()).unwrap();
        drop((a, region));
        assert!(domain.mapped() >= mapped);
        drop(cq);
        // Headers of frames and all: nothing of it is mapped any more.
        assert!(domain.mapped() < mapped);
    }
}

/// How often this thread has gone to sleep.
fn sleeps() -> i64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn a_sleeper_sleeps_on_while_nothing_comes() {
    let ViPair { a: _a, b } = pair();
    let sleeper = Sleeper::new().unwrap();
    let news = Awaited::News(&b.nic);
    for awaited in [Awaited::Completions(&b.cq), news] {
        let before = sleeps();
        let came = sleeper.wait(awaited, Duration::from_millis(200), |_| Ok(None::<()>)).unwrap();
        assert!(came.is_none());
        let slept = sleeps() - before;
        // With looks in between it would be one in 100 us, as long as the adapter has no interrupt.
        assert!((1..=10).contains(&slept), "{slept}");
    }
}

#[test]
fn a_sleeper_is_woken_by_what_another_thread_takes_from_the_adapter() {
    const MESSAGES: u32 = 200;
    let ViPair { a, b } = pair();
    post_receive(&b);
    let (tell, told) = channel();
    thread::scope(|scope| {
        let (vi, cq) = (&b.vi, &b.cq);
        let waiter = scope.spawn(move || {
            let sleeper = Sleeper::new().unwrap();
            for mark in 0..MESSAGES {
                let ready = |patient| if patient { cq.poll_patiently() } else { cq.poll() };
                let completion = sleeper.wait(Awaited::Completions(cq), PATIENCE, ready).unwrap().unwrap();
                assert_eq!(completion.descriptor.immediate, Some(mark));
                vi.post_receive(completion.descriptor).unwrap();
                tell.send(()).unwrap();
            }
        });
        // Another interface's business: it takes all that comes to the NIC.
        let nic = b.nic.clone();
        scope.spawn(move || {
            while !waiter.is_finished() {
                nic.poll().unwrap();
                thread::yield_now();
            }
        });
        for mark in 0..MESSAGES {
            send(&a, mark);
            told.recv_timeout(PATIENCE).unwrap();
        }
    });
}

#[test]
fn a_sleeper_is_woken_by_news_and_by_whoever_wakes_it() {
    let ViPair { a, b } = pair();
    let sleeper = Sleeper::new().unwrap();
    // Woken before it sleeps: it does not.
    sleeper.wake();
    sleeper.sleep(PATIENCE).unwrap();
    sleeper.hush();
    assert!(sleeper.arm(Awaited::Completions(&b.cq)).unwrap());
    sleeper.disarm(Awaited::Completions(&b.cq));
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let sleeper = &sleeper;
        scope.spawn(|| {
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            sleeper.wake();
        });
        let ready = |_| Ok(done.load(std::sync::atomic::Ordering::Relaxed).then_some(()));
        assert!(sleeper.wait(Awaited::Completions(&b.cq), PATIENCE, ready).unwrap().is_some());
    });
    // A peer that leaves is news.
    thread::scope(|scope| {
        scope.spawn(|| a.vi.disconnect().unwrap());
        let ready = |_| Ok((b.vi.state() == ViState::Error).then_some(()));
        assert!(sleeper.wait(Awaited::News(&b.nic), PATIENCE, ready).unwrap().is_some());
    });
    let tied = Awaited::Queue(&b.vi, WorkQueue::Receive);
    assert!(matches!(sleeper.arm(tied), Err(Error::Parameter(_))));
}
