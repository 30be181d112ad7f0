//! Connection identities: numbers that nobody off the path can guess, not even who knows others of them.

/// Makes identities from a seed: SipHash-2-4 over a counter.
pub(super) struct Identities {
    key: [u64; 2],
    counter: u64,
}

impl Identities {
    pub(super) fn new(seed: u64) -> Self {
        let first = siphash([seed, !seed], 0);
        Self { key: [seed ^ first, siphash([first, seed], 1)], counter: 0 }
    }

    /// One that is not 0 (which stands for none).
    pub(super) fn next(&mut self) -> u64 {
        loop {
            self.counter += 1;
            match siphash(self.key, self.counter) {
                0 => {}
                identity => return identity,
            }
        }
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of one word.
fn siphash(key: [u64; 2], word: u64) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    for block in [word, 8 << 56] {
        v[3] ^= block;
        round(&mut v);
        round(&mut v);
        v[0] ^= block;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_vector() {
        // Key 00..0f, message 00..07: from the reference implementation's test vectors.
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(super::siphash(key, 0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }
}
