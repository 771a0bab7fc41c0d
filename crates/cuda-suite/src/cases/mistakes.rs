//! Normals with one mistake in their arithmetic: the blocks of `witnesses::last_bits` show each of them.

use super::edge::{edge, rounded};
use super::rare::SCALES;
use super::witnesses::{BESIDE, LARGEST, ZERO, key, last_bits, named_row, named_tiles};
use corrnoise::chacha::ChaCha;
use corrnoise::gauss::{
    COS, HALF_PI, LOG, MINUS_2_LN_2, SIN, TAIL_LIMIT, TWO_POW_MINUS_32, normals, radius, tail_radius,
};
use corrnoise::{Element, Rounds, Row};
use half::{bf16, f16};
use std::cell::Cell;

/// A mistake in an operation or in a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// An operation whose result is rounded toward zero.
    Cut,
    /// An fma whose product is rounded too.
    Split,
    /// A constant whose bits, as an integer, are one more.
    More,
    /// A constant whose bits are one less.
    Less,
}

/// Arithmetic that makes one mistake: in the operation or constant number `at`, in the order in which they come.
struct Arithmetic {
    at: usize,
    mistake: Mistake,
    count: Cell<usize>,
    made: Cell<bool>,
}

impl Arithmetic {
    fn new(at: usize, mistake: Mistake) -> Arithmetic {
        Arithmetic { at, mistake, count: Cell::new(0), made: Cell::new(false) }
    }

    /// The mistake of the next operation, if it is the one to go wrong and the mistake is a `possible` one.
    fn is_next(&self, possible: &[Mistake]) -> Option<Mistake> {
        let number = self.count.replace(self.count.get() + 1);
        let made = number == self.at && possible.contains(&self.mistake);
        self.made.set(self.made.get() || made);
        made.then_some(self.mistake)
    }

    fn constant(&self, constant: f32) -> f32 {
        match self.is_next(&[Mistake::More, Mistake::Less]) {
            Some(Mistake::More) => f32::from_bits(constant.to_bits() + 1),
            Some(_) => f32::from_bits(constant.to_bits() - 1),
            None => constant,
        }
    }

    /// An exact value, rounded once; none of them needs more than 53 bits.
    fn once(&self, exact: f64) -> f32 {
        match self.is_next(&[Mistake::Cut]) {
            Some(_) => cut(exact, 0.0),
            None => exact as f32,
        }
    }

    fn product(&self, a: f32, b: f32) -> f32 {
        self.once(f64::from(a) * f64::from(b))
    }

    fn fma(&self, a: f32, b: f32, c: f32) -> f32 {
        match self.is_next(&[Mistake::Cut, Mistake::Split]) {
            Some(Mistake::Cut) => {
                // These are the sum, and exactly what its rounding to f64 left out.
                let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
                let sum = product + c;
                let of_c = sum - product;
                cut(sum, (product - (sum - of_c)) + (c - of_c))
            }
            Some(_) => a * b + c,
            None => a.mul_add(b, c),
        }
    }

    fn sqrt(&self, square: f32) -> f32 {
        let root = square.sqrt();
        let is_above = f64::from(root) * f64::from(root) > f64::from(square);
        let is_cut = self.is_next(&[Mistake::Cut]).is_some();
        if is_cut && is_above { f32::from_bits(root.to_bits() - 1) } else { root }
    }

    fn horner(&self, coefs: &[f32], x: f32) -> f32 {
        let mut coefs = coefs.iter().rev().map(|coef| self.constant(*coef));
        let first = coefs.next().unwrap_or(0.0);
        coefs.fold(first, |sum, coef| self.fma(sum, x, coef))
    }

    /// The radius of a word, with its extension if it is small. No word here is 0.
    fn radius(&self, word: u32, extension: u32) -> f32 {
        assert_ne!(word, 0);
        let u = if word < TAIL_LIMIT {
            // Each word takes one of the two conversions; this one converts a number of 48 bits, which f64 holds.
            let wide = u64::from(word) << 32 | u64::from(extension | 1);
            self.is_next(&[]);
            self.once(wide as f64) * TWO_POW_MINUS_32 * TWO_POW_MINUS_32
        } else {
            let u = self.once(f64::from((word | 1) as i32)) * TWO_POW_MINUS_32;
            self.is_next(&[]);
            u
        };
        let bits = u.to_bits();
        let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f00_0000);
        let (e, f) = if u < 0.0 { (0.0, u) } else { (((bits >> 23) as i32 - 126) as f32, mantissa - 1.0) };
        let product = self.product(self.horner(&LOG, f), f);
        self.sqrt(self.fma(e, self.constant(MINUS_2_LN_2), product))
    }

    fn normals(&self, radius: f32, word: u32) -> [f32; 2] {
        let t = self.once(f64::from((word << 2 | 2) as i32)) * TWO_POW_MINUS_32;
        let y = self.product(t, t);
        let product = self.product(self.horner(&SIN, y), t);
        let sin = self.fma(t, self.constant(HALF_PI), product);
        let cos = self.horner(&COS, y);
        let cos = f32::from_bits(cos.to_bits() ^ (word << 1 & 0x8000_0000));
        let (rs, rc) = (self.product(radius, sin), self.product(radius, cos));
        if word >> 31 == 1 { [rs, rc] } else { [rc, rs] }
    }
}

/// `high + low` as f32, rounded toward zero; `low` is less than the last bit of `high`.
fn cut(high: f64, low: f64) -> f32 {
    let nearest = high as f32;
    let above = (f64::from(nearest) - high) - low;
    let is_too_large = above != 0.0 && (above > 0.0) == (nearest > 0.0);
    if is_too_large { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// True if gradients of a type tell one normal from another, in one of the steps of the case.
fn shows<E: Element>(normal: f32, wrong: f32) -> bool {
    let steps = SCALES.iter().flat_map(|scale| [(scale, true), (scale, false)]);
    normal != wrong
        && steps.into_iter().any(|(scale, above)| {
            let value = rounded::<E>(edge::<E>(scale * normal, above));
            let sum = |normal: f32| rounded::<E>(scale.mul_add(normal, value));
            sum(normal) != sum(wrong)
        })
}

/// The words of one pair in a block: radius, extension, angle.
fn words_of(row: Row, block: u64, pair: usize) -> [u32; 3] {
    let cipher = ChaCha::new(key(row.incarnation()).bytes(), Rounds::R8);
    let words = cipher.block(row.stream(), block);
    [words[2 * pair], cipher.block(row.tail_stream(), block)[2 * pair], words[2 * pair + 1]]
}

/// The blocks of tiles.
fn blocks(tiles: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    tiles.flat_map(|tile| 32 * tile..32 * tile + 32)
}

/// The words of one pair in every block of the case.
fn words(pair: usize) -> Vec<[u32; 3]> {
    blocks(last_bits()).map(|block| words_of(Row::default(), block, pair)).collect()
}

#[test]
fn without_a_mistake_they_are_the_normals() {
    for [word, extension, angle] in words(3) {
        let arithmetic = Arithmetic::new(usize::MAX, Mistake::Cut);
        let wide = if word < TAIL_LIMIT { tail_radius(word, extension, 0) } else { radius(word) };
        let (first, second) = normals(wide, angle);
        assert_eq!(arithmetic.normals(arithmetic.radius(word, extension), angle), [first, second]);
    }
}

/// Tests a tail that is left out at its limit, and one that is taken below a larger limit.
#[test]
fn a_wrong_limit_shows_in_every_pair() {
    for (blocks, has_tail) in [(LARGEST, true), (BESIDE, false)] {
        for (pair, block) in blocks.into_iter().enumerate() {
            let [word, extension, angle] = words_of(Row::default(), block, pair);
            let with = normals(tail_radius(word, extension, 0), angle);
            let without = normals(radius(word), angle);
            let (right, wrong) = if has_tail { (with, without) } else { (without, with) };
            let either = |shows: fn(f32, f32) -> bool| shows(right.0, wrong.0) || shows(right.1, wrong.1);
            println!(
                "{has_tail} {pair} {} {} {:?} {:?}",
                either(shows::<bf16>),
                either(shows::<f16>),
                right,
                (
                    wrong.0.to_bits() as i32 - right.0.to_bits() as i32,
                    wrong.1.to_bits() as i32 - right.1.to_bits() as i32
                )
            );
        }
    }
}

/// Tests extensions with one bit flipped, from the twentieth on: those below are rounded off from most words.
#[test]
fn every_bit_of_an_extension_shows_in_every_pair() {
    let row = named_row().unwrap();
    for pair in 0..8 {
        let all = blocks(named_tiles()).map(|block| words_of(row, block, pair));
        let small: Vec<_> = all.filter(|[word, ..]| *word < 1 << 6).collect();
        for bit in 20..32 {
            let shown = |[word, extension, angle]: &[u32; 3]| {
                let right = normals(tail_radius(*word, *extension, 0), *angle);
                let wrong = normals(tail_radius(*word, extension | 1 << bit, 0), *angle);
                let either = |shows: fn(f32, f32) -> bool| shows(right.0, wrong.0) || shows(right.1, wrong.1);
                either(shows::<bf16>) && either(shows::<f16>)
            };
            assert!(small.iter().any(shown), "bit {bit}, pair {pair}");
        }
    }
}

/// A radius word of 0 takes the tail's first word as its upper half: the second in its place shows. What the second word itself adds
/// shows only where the first is small too, once in 2⁴¹ words: `tests/twin.rs` calls the device's function with such words.
#[test]
fn the_first_word_of_a_tail_shows_in_every_pair() {
    let cipher = ChaCha::new(key(0).bytes(), Rounds::R8);
    for (pair, block) in ZERO.into_iter().enumerate() {
        let [word, first, angle] = words_of(Row::default(), block, pair);
        let second = cipher.block(Row::default().tail_stream(), block)[2 * pair + 1];
        assert_eq!(word, 0);
        let right = normals(tail_radius(0, first, second), angle);
        let wrong = normals(tail_radius(0, second, first), angle);
        assert!(shows::<bf16>(right.0, wrong.0) || shows::<bf16>(right.1, wrong.1), "pair {pair}");
    }
}

/// Every mistake in every operation and constant of every pair shows in 16-bit gradients and in f32.
#[test]
fn every_mistake_shows_in_every_pair() {
    let (mut operations, mut missing) = (0, Vec::new());
    for pair in 0..8 {
        let words = words(pair);
        for mistake in [Mistake::Cut, Mistake::Split, Mistake::More, Mistake::Less] {
            let mut at = 0;
            loop {
                let (mut possible, mut count, mut seen) = (false, 0, [false; 3]);
                for &[word, extension, angle] in &words {
                    let wrong = Arithmetic::new(at, mistake);
                    let got = wrong.normals(wrong.radius(word, extension), angle);
                    possible |= wrong.made.get();
                    count = wrong.count.get();
                    let right = Arithmetic::new(usize::MAX, mistake);
                    let expected = right.normals(right.radius(word, extension), angle);
                    for (a, b) in expected.into_iter().zip(got) {
                        seen[0] |= a != b;
                        seen[1] = seen[1] || shows::<bf16>(a, b);
                        seen[2] = seen[2] || shows::<f16>(a, b);
                    }
                    if seen == [true; 3] {
                        break;
                    }
                }
                operations += usize::from(possible);
                if possible && seen != [true; 3] {
                    missing.push(format!("{mistake:?} in operation {at}, pair {pair}: {seen:?}"));
                }
                at += 1;
                if at >= count {
                    break;
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(operations > 8 * 80, "{operations}");
}
