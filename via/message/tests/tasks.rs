//! Messages of tasks: with the smallest executor there can be, and with tokio's.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use common::{Kind, run};
use uvia_message::{Channel, Error, ReceiveMode, Result, SendMode, Source};

/// Wakes a thread, and counts.
struct Unpark {
    thread: Thread,
    woken: AtomicUsize,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Runs a future in this thread, which sleeps while it waits. Answers how often it was looked at, too.
fn block_on<T>(future: impl Future<Output = T>) -> (T, usize) {
    let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicUsize::new(0) });
    let waker = Waker::from(unpark);
    let mut future = std::pin::pin!(future);
    let mut looks = 1;
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (answer, looks);
        }
        std::thread::park();
        looks += 1;
    }
}

const LONG: usize = 300_000;

fn image(n: u32) -> Box<[u8]> {
    (0..LONG as u32).map(|at| (at * 7 + n) as u8).collect()
}

/// Sends a message of all that there is.
async fn send(channel: &Channel, to: usize, n: u32) -> Result<()> {
    let mut message = channel.begin_in_task(to).await?;
    message.put(&n).await?;
    message.append(image(n), SendMode::Cheaper, ReceiveMode::Cheaper).await?;
    message.append((*b"late").into(), SendMode::Later, ReceiveMode::Cheaper).await?;
    message.append(vec![n as u8; 20_000].into(), SendMode::Safer, ReceiveMode::Express).await?;
    let buffers = message.end().await?;
    assert_eq!(buffers.len(), 4, "they come back");
    Ok(())
}

async fn receive(channel: &Channel, from: usize) -> Result<u32> {
    let mut message = channel.receive_in_task(from).await?;
    assert_eq!(message.rank(), from);
    let n: u32 = message.get().await?;
    message.cheaper(vec![0; LONG].into(), SendMode::Cheaper).await?;
    message.cheaper(vec![0; 4].into(), SendMode::Later).await?;
    let middle = message.express(20_000, SendMode::Safer).await?;
    assert!(middle.iter().all(|byte| *byte == n as u8));
    let rooms = message.end().await?;
    assert!(rooms[0] == image(n) && &*rooms[1] == b"late");
    Ok(n)
}

#[test]
fn tasks_send_and_receive_on_every_port() {
    for kinds in [&[Kind::Vi][..], &[Kind::Tcp], &[Kind::Shared], &[Kind::Vi, Kind::Shared]] {
        run(
            2,
            kinds,
            |_| (),
            |session| {
                let channel = session.channel(0, &[]).unwrap();
                let other = 1 - session.rank();
                let (outcome, _) = block_on(async {
                    for n in 0..20 {
                        if session.rank() == 0 {
                            send(&channel, other, n).await?;
                        }
                        assert_eq!(receive(&channel, other).await?, n);
                        if session.rank() == 1 {
                            send(&channel, other, n).await?;
                        }
                    }
                    Ok::<(), Error>(())
                });
                outcome.unwrap();
            },
        );
    }
}

/// Two tasks in one thread of tokio's, on channels of the same session: neither is in the other's way while it waits.
#[test]
fn two_tasks_of_tokio_wait_in_one_thread() {
    run(
        2,
        &[Kind::Vi],
        |_| (),
        |session| {
            let channels = [0, 1].map(|n| session.channel(n, &[]).unwrap());
            let other = 1 - session.rank();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let tasks = tokio::task::LocalSet::new();
            let handles = channels.map(|channel| {
                let begins = (session.rank() == 0) == (channel.number() == 0);
                tasks.spawn_local(async move {
                    // On one channel rank 0 waits first, on the other rank 1.
                    for n in 0..10 {
                        if begins {
                            send(&channel, other, n).await?;
                            assert_eq!(receive(&channel, other).await?, n);
                        } else {
                            assert_eq!(receive(&channel, other).await?, n);
                            send(&channel, other, n).await?;
                        }
                    }
                    Ok::<(), Error>(())
                })
            });
            runtime.block_on(tasks);
            for handle in handles {
                runtime.block_on(handle).unwrap().unwrap();
            }
        },
    );
}

#[test]
fn a_step_that_was_left_half_way_ends_its_message() {
    run(
        2,
        &[Kind::Vi],
        |_| (),
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            if session.rank() == 0 {
                let (outcome, _) = block_on(async {
                    let mut message = channel.begin_in_task(1).await?;
                    {
                        // Nobody takes it, so that it stops half way; then it is dropped.
                        let step = message.append(image(1), SendMode::Safer, ReceiveMode::Express);
                        let mut step = std::pin::pin!(step);
                        let once = std::future::poll_fn(|context| Poll::Ready(step.as_mut().poll(context)));
                        assert!(once.await.is_pending());
                    }
                    let mut word = channel.receive_in_task(1).await?;
                    word.get::<u8>().await?;
                    word.end().await?;
                    let again = message.put(&2u8).await;
                    assert!(matches!(again, Err(Error::Failed)), "{again:?}");
                    send(&channel, 1, 3).await
                });
                outcome.unwrap();
                return;
            }
            channel.connect(0).unwrap();
            let (outcome, _) = block_on(async {
                let mut word = channel.begin_in_task(0).await?;
                word.put(&0u8).await?;
                word.end().await?;
                let heard = async {
                    let mut message = channel.receive_in_task(Source::Any).await?;
                    // It may have come before its sender thought better of it; its end has not.
                    message.express(LONG, SendMode::Safer).await?;
                    message.end().await
                };
                let heard = heard.await;
                assert!(matches!(heard, Err(Error::Abandoned { rank: 0 })), "{heard:?}");
                receive(&channel, 0).await
            });
            assert_eq!(outcome.unwrap(), 3);
        },
    );
}
