//! The probability of a pair's cell: both normals of a Box-Muller pair are released, so their joint law is what a release tells.
//!
//! All words that reach a cell are added up, each with the part of its dither that falls inside, and compared with exact normals. This
//! is no sampling: what is left is the engine's own error, which `planner::privacy::precision` extrapolates.

use corrnoise::gauss;
use corrnoise::planner::privacy::precision::pair_change;
use std::f64::consts::{FRAC_PI_2, TAU};

/// Words are uniform: 2³¹ radii that differ, and 2³² angles.
const PER_WORDS: f64 = 1.0 / (1_u64 << 63) as f64;

/// Words that give the same float, one entry for all in a row.
fn counted<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<(T, f64)> {
    let mut list: Vec<(T, f64)> = Vec::new();
    for value in values {
        match list.last_mut() {
            Some((last, count)) if *last == value => *count += 1.0,
            _ => list.push((value, 1.0)),
        }
    }
    list
}

fn last_place(z: f64) -> f64 {
    f64::from(f32::from_bits((z as f32).to_bits() & 0x7f80_0000)) / f64::from(1 << 23)
}

/// A dither is at least this part of a cell wide; with a scale that is a power of two in units of the grid, it is just this wide.
const DITHER: f64 = 1.0 / 8.0;

/// The part of a value's dither that lies in a cell.
fn part(z: f32, low: f64, width: f64) -> f64 {
    let (z, dither) = (f64::from(z), DITHER * width);
    (((z + dither / 2.0).min(low + width) - (z - dither / 2.0).max(low)) / dither).max(0.0)
}

/// The normal mass of a narrow cell, by Simpson's rule.
fn mass(low: f64, width: f64) -> f64 {
    let density = |at: f64| (-(low + at * width).powi(2) / 2.0).exp();
    let sum = density(0.0) + 4.0 * density(0.25) + 2.0 * density(0.5) + 4.0 * density(0.75) + density(1.0);
    sum * width / 12.0 / TAU.sqrt()
}

/// The probability of a cell over that of exact normals, less 1. The cell lies where the cosine is the first of the pair and the larger
/// one, and its sides are `width` long from `(x, y)` on.
fn error(x: f64, y: f64, width: f64) -> f64 {
    let pad = DITHER * width / 2.0 + 4.0 * last_place(x + y.abs() + width);
    let (near, far) = (y.abs().min((y + width).abs()) - pad, y.abs().max((y + width).abs()) + pad);
    let (inner, outer) = ((x - pad).hypot(near), (x + width + pad).hypot(far));
    let word = |radius: f64| (-radius * radius / 2.0).exp() * 2.0_f64.powi(32);
    let words = ((word(outer) as u32 - 64) & !1)..=(word(inner) as u32).saturating_add(64);
    let radii = counted(words.step_by(2).map(gauss::radius));
    let angle = |y: f64, x: f64| y.atan2(x) / FRAC_PI_2 * f64::from(1 << 30);
    let corners = [(y - pad, x - pad), (y - pad, x + width + pad), (y + width + pad, x - pad)];
    let corners = corners.into_iter().chain([(y + width + pad, x + width + pad)]).map(|(y, x)| angle(y, x));
    let (least, most) = corners.fold((f64::MAX, f64::MIN), |(a, b), angle| (a.min(angle), b.max(angle)));
    let words = (least as i64 - 8)..=(most as i64 + 8);
    let angles = counted(words.map(|word| gauss::sin_cos(word as u32 & 0x3fff_ffff)));
    let mut before = vec![0.0];
    before.extend(angles.iter().scan(0.0, |sum, (_, count)| {
        *sum += count;
        Some(*sum)
    }));
    let mut total = 0.0;
    for (radius, count) in &radii {
        let r = f64::from(*radius);
        let sine = |limit: f64| angles.partition_point(|((sin, _), _)| f64::from(*sin) < limit / r);
        // The cosine falls where the sine is positive, and rises where it is negative.
        let cosine =
            |limit: f64| angles.partition_point(|((_, cos), _)| (f64::from(*cos) < limit / r) == (y < 0.0));
        let (low, high) = if y < 0.0 { (x, x + width) } else { (x + width, x) };
        let side = if y < 0.0 { pad } else { -pad };
        let first = sine(y - pad).max(cosine(low - side));
        let end = sine(y + width + pad).min(cosine(high + side));
        let inner = sine(y + pad).max(cosine(low + side));
        let inner_end = sine(y + width - pad).min(cosine(high - side));
        let edges = |range: std::ops::Range<usize>| -> f64 {
            let inside = |((sin, cos), count): &((f32, f32), f64)| {
                count * part(radius * cos, x, width) * part(radius * sin, y, width)
            };
            angles.get(range).unwrap_or_default().iter().map(inside).sum()
        };
        total += count
            * match inner < inner_end {
                true => edges(first..inner) + (before[inner_end] - before[inner]) + edges(inner_end..end),
                false => edges(first..end),
            };
    }
    total * PER_WORDS / (mass(x, width) * mass(y, width)) - 1.0
}

/// The root mean square of `e(y) − e(y − g)` for normals of so many units of the grid, over cells where normals fall.
fn change(bits: i32, cells: u32) -> f64 {
    let width = 2.0_f64.powi(-bits);
    let (mut sum, mut done, mut at) = (0.0, 0, 0_u32);
    while done < cells {
        at += 1;
        // Points that are spread evenly over radii and angles.
        let [u, v] = [0.754_877_666, 0.569_840_290].map(|ratio: f64| (f64::from(at) * ratio).fract());
        let (radius, angle) = ((-2.0 * u.ln()).sqrt(), (v - 0.5) * FRAC_PI_2);
        let [x, y] =
            [radius * angle.cos(), radius * angle.sin()].map(|z| ((z / width).floor() - 0.5) * width);
        // Not across the lines where sine and cosine change places.
        if y.abs() < 10.0 * width || x < y.abs() + 20.0 * width || radius > 4.0 {
            continue;
        }
        sum += (error(x, y, width) - error(x + 4.0 * width, y + 3.0 * width, width)).powi(2);
        done += 1;
    }
    (sum / f64::from(done)).sqrt()
}

#[test]
fn a_pairs_cell_is_off_by_no_more_than_the_estimate_and_hardly_less() {
    for (bits, cells) in [(15, 300), (14, 100), (13, 100), (11, 10)] {
        let (found, expected) = (change(bits, cells), pair_change(2.0_f64.powi(bits)));
        println!("2^{bits} units: {found:.2e}, estimated {expected:.2e}");
        assert!((0.25..1.0).contains(&(found / expected)), "2^{bits}: {found:e}, estimated {expected:e}");
    }
}
