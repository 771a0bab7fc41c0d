//! Roots of `f(y) = 1 + Σ αᵢ/(y − λᵢ)`: the decays of a BLT's inverse.

/// One term `α/(y − λ)` of `f`.
pub(crate) struct Pole {
    pub(crate) scale: f64,
    pub(crate) decay: f64,
}

/// A root of `f`, held as its distance from the nearer pole: the distances `λ̃ − λ_j` and `1 − λ̃` then keep their digits
/// however close the poles are to each other or to 1.
pub(crate) struct Root {
    pub(crate) origin: usize,
    pub(crate) offset: f64,
}

impl Root {
    /// The only root between pole `i − 1` (or −∞) and pole `i`: there `f` falls from +∞ (or 1) to −∞.
    pub(crate) fn below(poles: &[Pole], i: usize) -> Root {
        if i == 0 {
            // Σ_j α_j/(λ_j − y) = 1 at the root, so its distance from the lowest pole is at most Σ α_j.
            return Root::near(poles, 0, -1.0, poles.iter().map(|p| p.scale).sum());
        }
        let half_gap = 0.5 * (poles[i].decay - poles[i - 1].decay);
        // The sign of f halfway tells which pole is nearer.
        if shifted(poles, i - 1, half_gap).0 <= 0.0 {
            Root::near(poles, i - 1, 1.0, half_gap)
        } else {
            Root::near(poles, i, -1.0, half_gap)
        }
    }

    /// The root at most `reach` from pole `origin` on the given side (±1): Newton's method on `offset · f`, which is
    /// smooth at the pole and positive there, with bisection where Newton's steps leave the bracket or shrink slowly.
    fn near(poles: &[Pole], origin: usize, side: f64, reach: f64) -> Root {
        let (mut low, mut high) = (0.0, reach);
        let (mut distance, mut last_step) = (0.5 * reach, reach);
        // 60 bisections exhaust the bracket's digits unless the root is very close to the pole, where Newton is exact.
        for _ in 0..200 {
            let (value, slope) = shifted(poles, origin, side * distance);
            if value > 0.0 {
                low = distance
            } else {
                high = distance
            }
            let newton = distance - side * value / slope;
            let slow = (newton - distance).abs() > 0.5 * last_step;
            let next = if low < newton && newton < high && !slow { newton } else { 0.5 * (low + high) };
            last_step = (next - distance).abs();
            distance = next;
            if last_step <= 0.5 * f64::EPSILON * distance {
                break;
            }
        }
        Root { origin, offset: side * distance }
    }

    /// The scale of the inverse at this root, `α̃ = −1/f'(λ̃) = 1/Σ_j α_j/(λ̃ − λ_j)²`.
    pub(super) fn residue(&self, poles: &[Pole]) -> f64 {
        let (_, others_slope) = others(poles, self.origin, self.offset);
        1.0 / (poles[self.origin].scale / self.offset / self.offset - others_slope)
    }
}

/// `x · f(λ_k + x)` and its derivative in x.
fn shifted(poles: &[Pole], k: usize, x: f64) -> (f64, f64) {
    let (others, slope) = others(poles, k, x);
    (poles[k].scale + x * others, others + x * slope)
}

/// `f(λ_k + x)` without the pole k, and its derivative.
fn others(poles: &[Pole], k: usize, x: f64) -> (f64, f64) {
    let (mut value, mut slope) = (1.0, 0.0);
    for pole in poles[..k].iter().chain(&poles[k + 1..]) {
        let distance = x + (poles[k].decay - pole.decay);
        value += pole.scale / distance;
        slope -= pole.scale / distance / distance;
    }
    (value, slope)
}
