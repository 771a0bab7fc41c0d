//! From words to standard normals: Box-Muller in f32, out of operations that every device rounds alike.
//!
//! Only `+`, `×`, `fma`, `√`, integer operations and integer → float conversions appear, each correctly rounded and in
//! the order written, so scalar Rust, AVX2 and CUDA give the same bits. The coefficients come from Sollya's `fpminimax`
//! (relative minimax over f32 coefficients); `docs/noise-spec.md` gives their errors and those of the whole transform.

/// Radius words below this are extended by 32 bits of the tail stream, and by 64 if they are 0.
pub const TAIL_LIMIT: u32 = 1 << 16;

/// −2·log1p(f)/f on [−½, 0], ascending powers. Relative error 2.5e-8.
///
/// With the mantissa taken in [½, 1) both terms of −2·ln u = −2·ln2·e − 2·log1p(f) are non-negative, so nothing cancels;
/// and for u ≥ ½ the argument f = u − 1 is the integer complement itself, so the radius keeps its digits near u = 1.
pub const LOG: [f32; 9] = bits([
    0xc0000000, 0x3f7fff5f, 0xbf2ad1ea, 0x3ef98553, 0xbf070c70, 0xbeb99ea7, 0xc01acf67, 0xc051fbc8,
    0xc0351ec0,
]);

/// The constant −2·ln 2, rounded to f32.
pub const MINUS_2_LN_2: f32 = f32::from_bits(0xbfb17218);

/// π/2 rounded to f32: the leading term of the sine, kept out of the polynomial so that its rounding error can be repaired.
pub const HALF_PI: f32 = f32::from_bits(0x3fc90fdb);

/// sin(π/2·t)/t − `HALF_PI` in y = t², |t| ≤ ½, ascending powers; the first is π/2 − `HALF_PI`. Relative error 4.1e-9.
pub const SIN: [f32; 4] = bits([0xb33bbd2e, 0xbf255ddf, 0x3da32fe2, 0xbb96dec9]);

/// cos(π/2·t) in y = t², |t| ≤ ½, ascending powers. Relative error 5.2e-10.
pub const COS: [f32; 5] = bits([0x3f800000, 0xbf9de9e6, 0x3e81e0dc, 0xbcaadbe7, 0x3a6b4255]);

/// The constant 2⁻³², exact in f32.
pub const TWO_POW_MINUS_32: f32 = f32::from_bits(0x2f800000);

const fn bits<const N: usize>(words: [u32; N]) -> [f32; N] {
    let mut floats = [0.0; N];
    let mut i = 0;
    while i < N {
        floats[i] = f32::from_bits(words[i]);
        i += 1;
    }
    floats
}

/// Horner's rule, one fma per coefficient.
fn horner<const N: usize>(coefs: &[f32; N], x: f32) -> f32 {
    let mut sum = coefs[N - 1];
    for &coef in coefs[..N - 1].iter().rev() {
        sum = sum.mul_add(x, coef);
    }
    sum
}

/// √(−2 ln u) for u = (word | 1)·2⁻³², a 31-bit uniform centred in its cell.
///
/// Call [`tail_radius`] instead when `word < TAIL_LIMIT`.
pub fn radius(word: u32) -> f32 {
    let x = (word | 1) as i32;
    let u = x as f32 * TWO_POW_MINUS_32;
    // A negative x is the integer complement: u is then the true uniform minus 1, which is what log1p wants.
    if x < 0 { radius_of(0.0, u) } else { radius_below_half(u) }
}

/// √(−2 ln u) for the uniform u of a small radius word, extended by two words: (word·2³² + (first | 1))·2⁻⁶⁴, or
/// (first·2³² + (second | 1))·2⁻⁹⁶ if the radius word is 0.
pub fn tail_radius(word: u32, first: u32, second: u32) -> f32 {
    const TWO_POW_MINUS_64: f32 = TWO_POW_MINUS_32 * TWO_POW_MINUS_32;
    let (high, low, scale) = match word {
        0 => (first, second, TWO_POW_MINUS_64 * TWO_POW_MINUS_32),
        _ => (word, first, TWO_POW_MINUS_64),
    };
    let wide = u64::from(high) << 32 | u64::from(low | 1);
    radius_below_half(wide as f32 * scale)
}

/// The radius for u in (0, ½), which is split into 2^e·(1 + f) with 1 + f in [½, 1).
fn radius_below_half(u: f32) -> f32 {
    let bits = u.to_bits();
    let e = (bits >> 23) as i32 - 126;
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f00_0000);
    radius_of(e as f32, mantissa - 1.0)
}

fn radius_of(e: f32, f: f32) -> f32 {
    let p = horner(&LOG, f) * f;
    e.mul_add(MINUS_2_LN_2, p).sqrt()
}

/// (sin, cos) of a quarter turn times t, t = ((word mod 2³⁰) as a signed 30-bit fraction) in (−½, ½).
pub fn sin_cos(word: u32) -> (f32, f32) {
    let t = (word << 2 | 2) as i32 as f32 * TWO_POW_MINUS_32;
    let y = t * t;
    let sin = t.mul_add(HALF_PI, horner(&SIN, y) * t);
    (sin, horner(&COS, y))
}

/// The two normals of a radius and an angle word. Bit 31 of the angle word swaps sine and cosine, bit 30 flips the cosine's sign.
pub fn normals(radius: f32, angle_word: u32) -> (f32, f32) {
    let (sin, cos) = sin_cos(angle_word);
    let cos = f32::from_bits(cos.to_bits() ^ (angle_word << 1 & 0x8000_0000));
    let (rs, rc) = (radius * sin, radius * cos);
    if angle_word >> 31 == 1 { (rs, rc) } else { (rc, rs) }
}
