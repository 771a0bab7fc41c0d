//! The Gaussian mechanism by the definition of (ε, δ), and the end of the engine's normals, whose radii are bounded.
//!
//! With `a = ε/μ − μ/2`, the privacy loss exceeds ε by `μt` at a distance t beyond a, so `δ = ∫₀^∞ φ(a + t)(1 − e^{−μt}) dt`, and
//! `1 − δ = ∫₀^∞ φ(a − t) + φ(a + t)e^{−μt} dt`. All integrands are positive; they are summed on a logarithmic scale, where the trapezoidal
//! rule converges exponentially.

/// The constant `ln √(2π)` of the normal density.
const LN_ROOT_TAU: f64 = 0.918_938_533_204_672_7;
/// The spacing of the trapezoidal rule in ln t.
const STEP: f64 = 0.125;

/// The integral `∫₀^∞ e^{exponent(t)} dt` for exponents that fall like `−xt − t²/2` or faster.
fn integral(x: f64, exponent: impl Fn(f64) -> f64) -> f64 {
    let scale = if x > 1.0 { 1.0 / x } else { 1.0 };
    let last = ((scale * 50.0).ln() / STEP).ceil() as i32;
    let first = ((scale * 1e-17).ln() / STEP).floor() as i32;
    (first..=last).map(|i| (f64::from(i) * STEP).exp()).map(|t| t * exponent(t).exp()).sum::<f64>() * STEP
}

/// The Mills ratio `Φ(−x)/φ(x)` for x ≥ 0.
pub fn mills(x: f64) -> f64 {
    integral(x, |t| -x * t - 0.5 * t * t)
}

/// The logarithm `ln δ` for `a ≥ −1`.
fn ln_delta(mu: f64, a: f64) -> f64 {
    let sum = integral(a.max(0.0), |t| -a * t - 0.5 * t * t + (-(-mu * t).exp_m1()).ln());
    -0.5 * a * a - LN_ROOT_TAU + sum.ln()
}

/// The logarithm `ln(1 − δ)` for `a ≤ 0`, `a ≥ −μ/2`.
fn ln_rest(mu: f64, a: f64) -> f64 {
    -0.5 * a * a - LN_ROOT_TAU + (mills(-a) + mills(a + mu)).ln()
}

/// The logarithms of δ and of 1 − δ, since either may be small.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    ln: f64,
    ln_rest: f64,
}

impl From<f64> for Delta {
    fn from(delta: f64) -> Delta {
        Delta { ln: delta.ln(), ln_rest: (1.0 - delta).ln() }
    }
}

impl Delta {
    /// This δ divided by a probability; none if the result is 1 or more.
    pub fn over(self, prob: f64) -> Option<Delta> {
        let ln = self.ln - prob.ln();
        (ln < 0.0).then(|| Delta { ln, ln_rest: (-ln.exp_m1()).ln() })
    }
}

/// A δ slightly larger than given, so that an ε computed from it is below the truth in spite of rounding.
pub fn a_little_more(delta: f64) -> Delta {
    let exact = Delta::from(delta);
    Delta { ln: exact.ln + 1e-11, ln_rest: exact.ln_rest - 1e-11 }
}

/// A δ slightly smaller than given, so that an ε computed from it is above the truth in spite of rounding.
pub fn a_little_less(delta: f64) -> Delta {
    let exact = Delta::from(delta);
    Delta { ln: exact.ln - 1e-9, ln_rest: exact.ln_rest + 1e-9 }
}

/// True if `δ(a)` is at most the given δ.
fn at_most(mu: f64, a: f64, delta: Delta) -> bool {
    if delta.ln <= -std::f64::consts::LN_2 {
        // δ ≥ 1 − 2Φ(a) is above ½ for a ≤ −1.
        a > -1.0 && ln_delta(mu, a) <= delta.ln
    } else {
        // δ ≤ Φ(−a) is at most ½ for a ≥ 0.
        a >= 0.0 || ln_rest(mu, a) >= delta.ln_rest
    }
}

/// The smallest ε ≥ 0 with `δ(ε) ≤ δ`, from below.
pub fn epsilon(mu: f64, delta: Delta) -> f64 {
    // The search is in x = ε/μ, with a = x − μ/2.
    let half = 0.5 * mu;
    if at_most(mu, -half, delta) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, half + (-2.0 * delta.ln).max(0.0).sqrt() + 1.0);
    while high - low > 1e-14 * high && high > 1e-300 {
        let middle = if high > 1e6 * low { (high * low.max(1e-9 * high)).sqrt() } else { 0.5 * (low + high) };
        if middle <= low || middle >= high {
            break;
        }
        if at_most(mu, middle - half, delta) { high = middle } else { low = middle }
    }
    mu * low
}

/// The largest radius of a pair of normals, which 96 bits give, and a little more.
fn radius() -> f64 {
    (192.0 * std::f64::consts::LN_2).sqrt() * (1.0 + 1e-6)
}

/// The probability that some pair of normals leaves its disc, if one normal of each is shifted. Without the shift, no output lies there.
pub fn leaving(shifts: &[f64]) -> f64 {
    let stays: f64 = shifts.iter().map(|shift| (-leaves(shift.abs()).min(1.0)).ln_1p()).sum();
    -stays.exp_m1()
}

/// The probability `P(|(z₁ + d, z₂)| > R, |z| ≤ R)` that one shifted pair leaves its disc.
pub fn leaves(shift: f64) -> f64 {
    let radius = radius();
    if shift >= 2.0 * radius {
        return 1.0;
    }
    let count = 256;
    let width = 2.0 * radius / f64::from(count);
    let across = |i: i32| {
        let z = -radius + (f64::from(i) + 0.5) * width;
        let edge = (radius * radius - z * z).sqrt();
        // The range of z₁ is from edge − d to edge, and no further than the other side.
        let from = (edge - shift).max(-edge);
        (-0.5 * z * z - LN_ROOT_TAU).exp() * (upper(from) - upper(edge)).max(0.0)
    };
    // Cells at the rim are coarse: a little less than the sum is certain.
    (0..count).map(across).sum::<f64>() * width * (1.0 - 1e-3)
}

/// The upper tail `Φ(−x)`, by its power series near 0 and its continued fraction beyond.
pub fn upper(x: f64) -> f64 {
    let density = (-0.5 * x * x - LN_ROOT_TAU).exp();
    if x < -3.0 {
        return 1.0 - upper(-x);
    }
    if x > 3.0 {
        let fraction = (1..=48).rev().fold(x, |rest, k| x + f64::from(k) / rest);
        return density / fraction;
    }
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        k += 2.0;
        term *= x * x / k;
        sum += term;
    }
    0.5 - density * sum
}
