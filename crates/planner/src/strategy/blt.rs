//! Buffered linear Toeplitz (BLT) strategies: parameters of the inverse, sensitivity and error, each in closed form.
//!
//! `C = BLT(α, λ)` has Toeplitz coefficients `1, Σ αᵢ, Σ αᵢλᵢ, Σ αᵢλᵢ², …` and its inverse is `BLT(−α̃, λ̃)`
//! (McMahan, Xu and Zhang 2024; Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024). Written in `y = 1/x`, the
//! generating function of `C` is
//!
//! ```text
//! f(y) = 1 + Σ αᵢ/(y − λᵢ) = Π (y − λ̃ᵢ) / Π (y − λᵢ)      λ̃₁ < λ₁ < λ̃₂ < λ₂ < … < 1
//! ```
//!
//! so λ̃ are the roots of `f`, and partial fractions give everything else. The published closed forms of the error
//! (`n + 2 Σ α̃ᵢΓᵢ + …`) subtract numbers of size n and more to leave one of size log n. Here the decoder `B = A C⁻¹`
//! of the prefix sums is expanded first: `b_t = κ + Σ βᵢ λ̃ᵢᵗ` with `κ = 1/f(1)` and `βᵢ = α̃ᵢ/(1 − λ̃ᵢ)`, all positive,
//! so that its squares sum over positive terms (but for odd powers of λ̃₁, the only decay that may be negative). Every
//! decay is kept with its complement `1 − λ`, because near 1 only the complement still has digits.

mod decay;
mod roots;

pub(crate) use decay::Decay;
pub(crate) use roots::{Pole, Root};

use crate::error::{Error, Result, check_finite, check_steps};

/// A strategy `C = BLT(α, λ)` with positive scales α and distinct decays λ in (0, 1), and its inverse.
///
/// # Guarantees
/// The inverse is stable: every λ̃ lies in (−1, 1). Column norms, entries of `CᵀC` and errors take O(d²) for any number
/// of steps and are exact to about 15 digits; as λ̃₁ → −1, to those that 1 + λ̃₁ has left.
///
/// ```
/// use corrnoise_planner::Blt;
/// let blt = Blt::new(&[0.25], &[0.75])?;
/// assert_eq!(blt.strategy_coefs(4), [1.0, 0.25, 0.1875, 0.140625]);
/// assert_eq!((blt.inverse_scale(), blt.inverse_decay()), (&[0.25][..], &[0.5][..]));
/// # Ok::<(), corrnoise_planner::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Blt {
    scale: Vec<f64>,
    decay: Vec<f64>,
    inverse_scale: Vec<f64>,
    inverse_decay: Vec<f64>,
    /// 1 − λ̃, to more digits than `inverse_decay` can hold.
    inverse_complement: Vec<f64>,
    /// κ, the limit of the decoder's coefficients.
    floor: f64,
}

impl Blt {
    /// Checks the pairs (α, λ), in any order, and finds the inverse.
    pub fn new(scale: &[f64], decay: &[f64]) -> Result<Blt> {
        check_lengths("decays", decay.len(), scale.len())?;
        for (i, &alpha) in scale.iter().enumerate() {
            if check_finite(&format!("scale {i}"), alpha)? <= 0.0 {
                return Err(Error::parameter(format!("scale {i}"), alpha, "above 0"));
            }
        }
        let order = ascending("decay", decay, 0.0)?;
        check_finite("sum of the scales", scale.iter().sum())?;
        let poles: Vec<Pole> = order.iter().map(|&i| Pole { scale: scale[i], decay: decay[i] }).collect();
        let roots: Vec<Root> = (0..poles.len()).map(|i| Root::below(&poles, i)).collect();
        let complement = |root: &Root| (1.0 - poles[root.origin].decay) - root.offset;
        let blt = Blt {
            scale: scale.to_vec(),
            decay: decay.to_vec(),
            inverse_scale: roots.iter().map(|root| root.residue(&poles)).collect(),
            inverse_decay: roots.iter().map(|root| poles[root.origin].decay + root.offset).collect(),
            inverse_complement: roots.iter().map(complement).collect(),
            floor: 1.0 / (1.0 + poles.iter().map(|p| p.scale / (1.0 - p.decay)).sum::<f64>()),
        };
        match blt.inverse_decay.first() {
            Some(&smallest) if smallest <= -1.0 => Err(Error::parameter(
                "smallest decay of the inverse",
                smallest,
                "above -1: this BLT's noise would grow without bound",
            )),
            _ => Ok(blt),
        }
    }

    /// The BLT whose strategy has the given decays λ and whose inverse has the decays λ̃. In ascending order they have
    /// to interlace, `−1 < λ̃₁ < λ₁ < λ̃₂ < λ₂ < … < 1`, which is the same as positive scales and a stable inverse:
    /// a parameterisation without constraints other than order.
    pub fn from_decays(decay: &[f64], inverse_decay: &[f64]) -> Result<Blt> {
        check_lengths("inverse decays", inverse_decay.len(), decay.len())?;
        let order = ascending("decay", decay, 0.0)?;
        let inverse_order = ascending("inverse decay", inverse_decay, -1.0)?;
        for (rank, &i) in inverse_order.iter().enumerate() {
            let below = if rank == 0 { -1.0 } else { decay[order[rank - 1]] };
            let above = decay[order[rank]];
            if !(below < inverse_decay[i] && inverse_decay[i] < above) {
                let expected = format!("above {below} and below {above}: the decays have to interlace");
                return Err(Error::parameter(format!("inverse decay {i}"), inverse_decay[i], expected));
            }
        }
        // αᵢ = Π_j (λᵢ − λ̃_j) / Π_{j≠i} (λᵢ − λ_j), in ratios of neighbours so that no product overflows.
        let mut scale = vec![0.0; decay.len()];
        for (rank, &i) in order.iter().enumerate() {
            scale[i] = decay[i] - inverse_decay[inverse_order[rank]];
            for (other, &j) in order.iter().enumerate().filter(|&(other, _)| other != rank) {
                scale[i] *= (decay[i] - inverse_decay[inverse_order[other]]) / (decay[i] - decay[j]);
            }
        }
        Blt::new(&scale, decay)
    }

    /// A near-optimal BLT for n prefix sums without an optimiser: a quadrature rule for the coefficients of `A^{1/2}`,
    ///
    /// ```text
    /// c_t = (1/π) ∫ s^t √(s(1 − s)) du,   s = 1/(1 + e^(−u)),   u from −∞ to ∞
    /// ```
    ///
    /// The trapezoidal rule with step h, exact up to `e^(−2π²/h)`, turns this into `Σ αᵢ λᵢ^(t−1)` with λ = s. The
    /// infinitely many nodes beyond each end are merged into one with their total weight and mean decay: the left one
    /// keeps c₁ and c₂, the right one stays correct to first order in `n(1 − λ)`, so the ends can lie close to `u = 0`
    /// and `u = ln n`. Excess of the max loss over that of `A^{1/2}`:
    ///
    /// | d | n = 10³ | n = 10⁶ | | d | n = 10³ | n = 10⁶ |
    /// |---|---|---|---|---|---|---|
    /// | 1 | 18% | 118% | | 6 | 9.2e-6 | 0.16% |
    /// | 2 | 3.2% | 34% | | 7 | 2.9e-6 | 5.6e-4 |
    /// | 3 | 0.27% | 8.1% | | 8 | 6.7e-7 | 1.9e-4 |
    /// | 4 | 4.3e-4 | 2.1% | | 16 | 8.2e-11 | 8.8e-8 |
    /// | 5 | 8.0e-5 | 0.57% | | 32 | rounding | 4.7e-13 |
    ///
    /// Decays cannot approach 1 further than f64 does: beyond 10¹² steps the strategy is that of 10¹².
    pub fn rational(num_buffers: usize, num_steps: u64) -> Result<Blt> {
        check_steps(usize::try_from(num_steps).unwrap_or(usize::MAX))?;
        if !(1..=64).contains(&num_buffers) {
            // With 64 the excess is below 1e-12 up to 10⁸ steps: more would change the rounding only.
            return Err(Error::parameter("number of buffers", num_buffers, "between 1 and 64"));
        }
        let n = num_steps.min(1_000_000_000_000) as f64;
        if num_buffers == 1 {
            // Minimises the leading term 1.19 n^(1/6) of the loss; 31 keeps c₁ at most ½, its best value for n = 2.
            let alpha = (4.0 / (n + 31.0)).cbrt();
            return Blt::new(&[alpha], &[1.0 - 0.25 * alpha * alpha]);
        }
        // The best ends for d from 2 to 32 and n from 10³ to 10⁸, fitted as functions of the step alone:
        // left = 0.75 + 0.42h − 2.8/h and right = ln n − 0.5 − 0.34h + 3.3/h, with (d − 1)h = right − left.
        let (quadratic, linear) = (num_buffers as f64 - 0.24, n.ln() - 1.25);
        let h = (linear + (linear * linear + 4.0 * 6.1 * quadratic).sqrt()) / (2.0 * quadratic);
        let left = 0.75 + 0.42 * h - 2.8 / h;
        let right = left + (num_buffers - 1) as f64 * h;
        let mut nodes = vec![tail(left, -h)];
        nodes.extend((1..num_buffers - 1).map(|i| node(left + i as f64 * h, h)));
        nodes.push(tail(right, h));
        let (scale, decay): (Vec<f64>, Vec<f64>) =
            nodes.into_iter().map(|(alpha, decay)| (alpha, decay.value)).unzip();
        Blt::new(&scale, &decay)
    }

    /// α, in the order given.
    pub fn scale(&self) -> &[f64] {
        &self.scale
    }

    /// λ, in the order given.
    pub fn decay(&self) -> &[f64] {
        &self.decay
    }

    /// α̃ > 0, of which the inverse has the negatives: `C⁻¹ = BLT(−α̃, λ̃)`.
    pub fn inverse_scale(&self) -> &[f64] {
        &self.inverse_scale
    }

    /// λ̃ in ascending order. The first may be negative; near 1 it is rounded, and [`Blt`] itself computes with 1 − λ̃.
    pub fn inverse_decay(&self) -> &[f64] {
        &self.inverse_decay
    }

    /// d, the number of buffers.
    pub fn num_buffers(&self) -> usize {
        self.scale.len()
    }

    /// The first n Toeplitz coefficients of C.
    pub fn strategy_coefs(&self, n: usize) -> Vec<f64> {
        (0..n as u64).map(|t| self.strategy_coef(t)).collect()
    }

    /// The first n Toeplitz coefficients of C⁻¹.
    pub fn noising_coefs(&self, n: usize) -> Vec<f64> {
        let term = |t| self.inverse_terms().map(|(alpha, decay)| -alpha * decay.power(t)).sum::<f64>();
        (0..n as u64).map(|t| if t == 0 { 1.0 } else { term(t - 1) }).collect()
    }

    /// Whether the coefficients of C never increase, which is `Σ αᵢ ≤ 1`: from the second on they always fall.
    pub fn is_non_increasing(&self) -> bool {
        self.scale.iter().sum::<f64>() <= 1.0
    }

    /// Squared norm of column 0 of the n × n matrix C, its largest: the squared sensitivity to one participation.
    /// An empty matrix has norm 0.
    pub fn column_norm_squared(&self, num_steps: u64) -> f64 {
        self.gram(num_steps, 0, 0)
    }

    /// `(CᵀC)[s, t]` of the n × n matrix C; 0 outside the matrix.
    pub fn gram(&self, num_steps: u64, s: u64, t: u64) -> f64 {
        let (s, t) = (s.min(t), s.max(t));
        if t >= num_steps {
            return 0.0;
        }
        let (lag, overlap) = (t - s, num_steps - t - 1);
        let mut entry = self.strategy_coef(lag);
        for (alpha, decay) in self.terms() {
            let weight = alpha * decay.power(lag);
            entry += weight * self.terms().map(|(a, other)| a * decay.times(other).sum(overlap)).sum::<f64>();
        }
        entry
    }

    /// Squared sensitivity to at most k participations that lie at least `min_sep` steps apart (0 counts as 1), taken
    /// early and often: `‖Σ_j C e_{j·min_sep}‖²`. Exact if [`Blt::is_non_increasing`], else only a lower bound.
    ///
    /// O(k d²): the entries of `CᵀC` above each diagonal entry are summed as geometric series.
    pub fn min_sep_sensitivity_squared(&self, num_steps: u64, min_sep: u64, max_participations: u64) -> f64 {
        let min_sep = min_sep.max(1);
        let mut total = 0.0;
        for j in 0..max_participations.min(num_steps.div_ceil(min_sep)) {
            let overlap = num_steps - j * min_sep - 1;
            total += 1.0;
            for (alpha, decay) in self.terms() {
                // Σ_{l=1}^{j} λ^{l·min_sep}, over the earlier participations.
                let stride = decay.pow(min_sep);
                let earlier = stride.value * stride.sum(j);
                let inner: f64 = self.terms().map(|(a, other)| a * decay.times(other).sum(overlap)).sum();
                // c_L = Σ αᵢ λᵢ^{L−1} for the lag L ≥ 1, and Σ αᵢαⱼ λᵢ^L γ(λᵢλⱼ) for every lag.
                total += alpha * (2.0 * earlier / decay.value + (1.0 + 2.0 * earlier) * inner);
            }
        }
        total
    }

    /// Squared error of the last of n prefix sums, the largest: the squared norm of the last row of `B = A C⁻¹`.
    pub fn max_error_squared(&self, num_steps: u64) -> f64 {
        self.decoder_form(num_steps as f64, |decay| decay.sum(num_steps))
    }

    /// Mean over n prefix sums of their squared errors (the RMS error, squared): `‖A C⁻¹‖²_F / n`; 0 for none.
    pub fn mean_error_squared(&self, num_steps: u64) -> f64 {
        if num_steps == 0 {
            return 0.0;
        }
        let n = num_steps as f64;
        // Coefficient t of B stands in n − t rows; dividing first keeps n(n + 1)/2 within range.
        self.decoder_form(0.5 * (n + 1.0), |decay| decay.ramp_sum(num_steps) / n)
    }

    /// `Σ_t w_t b_t²` for weights w given by `ones = Σ w_t` and `sum(λ) = Σ w_t λᵗ`.
    fn decoder_form(&self, ones: f64, sum: impl Fn(Decay) -> f64) -> f64 {
        let kappa = self.floor;
        let mut form = kappa * kappa * ones;
        for (alpha, decay) in self.inverse_terms() {
            let beta = alpha / decay.complement;
            let cross: f64 = self.inverse_terms().map(|(a, o)| a / o.complement * sum(decay.times(o))).sum();
            form += beta * (2.0 * kappa * sum(decay) + cross);
        }
        form
    }

    fn strategy_coef(&self, t: u64) -> f64 {
        if t == 0 { 1.0 } else { self.terms().map(|(alpha, decay)| alpha * decay.power(t - 1)).sum() }
    }

    fn terms(&self) -> impl Iterator<Item = (f64, Decay)> {
        self.scale.iter().zip(&self.decay).map(|(&alpha, &decay)| (alpha, Decay::new(decay)))
    }

    fn inverse_terms(&self) -> impl Iterator<Item = (f64, Decay)> {
        let decays = self.inverse_decay.iter().zip(&self.inverse_complement);
        let decays = decays.map(|(&value, &complement)| Decay { value, complement });
        self.inverse_scale.iter().copied().zip(decays)
    }
}

/// Weight and decay of the trapezoidal rule's node at u.
fn node(u: f64, h: f64) -> (f64, Decay) {
    let decay = Decay { value: 1.0 / (1.0 + (-u).exp()), complement: 1.0 / (1.0 + u.exp()) };
    (h.abs() / std::f64::consts::PI * decay.value * (decay.value * decay.complement).sqrt(), decay)
}

/// The nodes `u, u + h, u + 2h, …` merged into one with their total weight and their mean decay.
fn tail(u: f64, h: f64) -> (f64, Decay) {
    let (mut weight, mut value, mut complement) = (0.0, 0.0, 0.0);
    let mut nodes = (0..).map(|k| node(u + f64::from(k) * h, h));
    while let Some((alpha, decay)) = nodes.next().filter(|&(alpha, _)| alpha > f64::EPSILON * weight) {
        weight += alpha;
        value += alpha * decay.value;
        complement += alpha * decay.complement;
    }
    let (value, complement) = (value / weight, complement / weight);
    (weight, Decay { value: if value > 0.5 { 1.0 - complement } else { value }, complement })
}

fn check_lengths(what: &str, got: usize, expected: usize) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::parameter(format!("number of {what}"), got, format!("one per buffer: {expected}")))
}

/// The order that sorts `values`, if they are distinct and lie above `lower` and below 1.
fn ascending(name: &str, values: &[f64], lower: f64) -> Result<Vec<usize>> {
    for (i, &value) in values.iter().enumerate() {
        // Written so that NaN fails it.
        if !(lower < value && value < 1.0) {
            return Err(Error::parameter(format!("{name} {i}"), value, format!("above {lower} and below 1")));
        }
    }
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    match order.windows(2).find(|pair| values[pair[0]] == values[pair[1]]) {
        Some(pair) => Err(Error::parameter(
            format!("{name} {}", pair[1]),
            values[pair[1]],
            format!("a value other than that of {name} {}: merge the two buffers", pair[0]),
        )),
        None => Ok(order),
    }
}
