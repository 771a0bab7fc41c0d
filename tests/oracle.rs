//! The keystream against `rand_chacha`, an implementation nobody here wrote.

use corrnoise::chacha::ChaCha;
use corrnoise::{Family, Rounds, Row};
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_chacha::{ChaCha8Rng, ChaCha12Rng, ChaCha20Rng};

macro_rules! compare {
    ($rng:ty, $rounds:expr) => {
        let key: [u8; 32] = std::array::from_fn(|i| (i * 83 + 5) as u8);
        let cipher = ChaCha::new(&key, $rounds);
        let rows =
            [(Family::Step, 0, 0), (Family::Step, 3, 12_345), (Family::TreeNode, 0xffff, (1 << 40) - 1)];
        for (family, incarnation, index) in rows {
            let row = Row::new(family, incarnation, index).unwrap();
            for stream in [row.stream(), row.tail_stream()] {
                // Blocks around 0, around the wrap of the low counter word, and far out.
                for first in [0, (1 << 32) - 2, 1 << 45] {
                    let mut rng = <$rng>::from_seed(key);
                    rng.set_stream(stream);
                    rng.set_word_pos(16 * first as u128);
                    for block in first..first + 4 {
                        let expected: [u32; 16] = std::array::from_fn(|_| rng.next_u32());
                        assert_eq!(
                            cipher.block(stream, block),
                            expected,
                            "stream {stream:x}, block {block:x}"
                        );
                    }
                }
            }
        }
    };
}

#[test]
fn blocks_are_those_of_rand_chacha() {
    compare!(ChaCha8Rng, Rounds::R8);
    compare!(ChaCha12Rng, Rounds::R12);
    compare!(ChaCha20Rng, Rounds::R20);
}
