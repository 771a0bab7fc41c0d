//! Approximate instructions, whose results PTX specifies only up to an error. A kernel must be right with every result that
//! the error allows, so the stand-in returns any of them: a fixed one per argument, drawn from a seed.

use super::scalar::canonical;

/// The largest relative error of `rsqrt.approx.ftz.f32` that the PTX ISA documents: 2^-22.9.
const RSQRT_ERROR: f64 = 1.277_550_292_141_467e-7;

/// Which of the allowed results an approximate instruction returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Approximation {
    /// One that the argument and this seed choose.
    Random(u64),
    /// The one nearest to the exact result.
    Exact,
    Highest,
    Lowest,
}

impl Default for Approximation {
    fn default() -> Self {
        Self::Random(0)
    }
}

impl Approximation {
    /// The result of `rsqrt.approx.ftz.f32`: subnormal arguments count as zeros of their sign.
    pub(super) fn rsqrt_ftz(self, bits: u32) -> u32 {
        let x = f32::from_bits(bits);
        match x {
            _ if x == 0.0 || x.is_subnormal() => f32::INFINITY.copysign(x).to_bits(),
            _ if x.is_finite() && x > 0.0 => {
                self.near(f64::from(x).sqrt().recip(), RSQRT_ERROR, bits).to_bits()
            }
            f32::INFINITY => 0,
            _ => canonical(f32::NAN),
        }
    }

    /// A float within a relative error of `exact`, which is positive.
    fn near(self, exact: f64, error: f64, argument: u32) -> f32 {
        let part = match self {
            Self::Exact => return exact as f32,
            Self::Highest => 1.0,
            Self::Lowest => -1.0,
            Self::Random(seed) => {
                let mut hash = seed ^ u64::from(argument).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                hash = (hash ^ hash >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                hash = (hash ^ hash >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((hash ^ hash >> 32) as u32 as i32) as f64 / 2_147_483_648.0
            }
        };
        let wanted = exact * (1.0 + part * error);
        let rounded = wanted as f32;
        // Rounding may lead out of the bound; the neighbour towards the exact value is inside it.
        match f64::from(rounded) - wanted {
            off if off > 0.0 && part > 0.0 => rounded.next_down(),
            off if off < 0.0 && part < 0.0 => rounded.next_up(),
            _ => rounded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_is_within_the_error_and_the_edges_are_reached() {
        let mut distinct = std::collections::HashSet::new();
        for i in 0..200_000u32 {
            let bits = 0x0080_0000 + i * 10_567;
            let exact = f64::from(f32::from_bits(bits)).sqrt().recip();
            let off = |how: Approximation| f64::from(f32::from_bits(how.rsqrt_ftz(bits))) / exact - 1.0;
            let [low, near, high] =
                [Approximation::Lowest, Approximation::Exact, Approximation::Highest].map(off);
            let random = off(Approximation::Random(7));
            assert!(-RSQRT_ERROR <= low && low <= near && near <= high && high <= RSQRT_ERROR, "{bits:#x}");
            assert!(low <= random && random <= high, "{bits:#x}");
            assert!(low < -6e-9 && high > 6e-9, "{bits:#x} {low:e} {high:e}");
            distinct.insert([random == low, random == near, random == high]);
        }
        assert!(distinct.len() >= 3, "{distinct:?}");
    }

    #[test]
    fn seeds_choose_differently() {
        let results = |seed| {
            (0..100).map(move |i| Approximation::Random(seed).rsqrt_ftz(0x3f80_0001 + i)).collect::<Vec<_>>()
        };
        assert_eq!(results(1), results(1));
        assert_ne!(results(1), results(2));
    }
}
