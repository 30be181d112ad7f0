//! Messages between ranks, on virtual interfaces over shared memory.

mod common;

use common::{Kind, run};
use uvia_message::{ReceiveMode, Result, SendMode, Source};

#[test]
fn a_message_is_unpacked_as_it_was_packed() {
    run(
        2,
        &[Kind::Vi],
        |_| (),
        |session| {
            let channel = session.channel(0, &[]).unwrap();
            let image: Vec<u8> = (0..100_000u32).map(|n| (n * 7 / 3) as u8).collect();
            if session.rank() == 0 {
                channel
                    .send(1, |message| {
                        message.put(&(image.len() as u64))?;
                        message.later(b"behind", ReceiveMode::Cheaper)?;
                        message.cheaper(&image, ReceiveMode::Cheaper)?;
                        message.safer(b"end", ReceiveMode::Express)
                    })
                    .unwrap();
                let answer: u32 = channel.receive(1, |message| message.get()).unwrap();
                assert_eq!(answer, 77);
            } else {
                let (mut got, mut behind) = (Vec::new(), [0; 6]);
                let (room, late) = (&mut got, &mut behind);
                let end = channel
                    .receive(Source::Any, |message| -> Result<[u8; 3]> {
                        assert_eq!(message.rank(), 0);
                        room.resize(message.get::<u64>()? as usize, 0);
                        message.cheaper(late, SendMode::Later)?;
                        message.cheaper(room, SendMode::Cheaper)?;
                        let mut end = [0; 3];
                        message.express(&mut end, SendMode::Safer)?;
                        Ok(end)
                    })
                    .unwrap();
                assert!(got == image && &behind == b"behind" && &end == b"end");
                channel.send(0, |message| message.put(&77u32)).unwrap();
            }
        },
    );
}
