//! The implicit QL iteration: eigenvalues of a tridiagonal matrix by rotations of neighbouring rows and columns.

/// Iterations per eigenvalue at most; two or three are usual.
const MAX_ITERATIONS: usize = 60;

/// Overwrites the diagonal by the eigenvalues, in no order; `None` if they do not converge. `beside` has as many entries as the
/// diagonal, of which the last is not used. `rotate(s, cos, sin)` hears of every rotation of the axes s and s + 1: vectors are built
/// from it.
pub(crate) fn eigenvalues(
    diagonal: &mut [f64],
    beside: &mut [f64],
    mut rotate: impl FnMut(usize, f64, f64),
) -> Option<()> {
    let n = diagonal.len();
    let largest =
        diagonal.iter().chain(&beside[..n - 1]).fold(0.0_f64, |largest, entry| largest.max(entry.abs()));
    for first in 0..n {
        let mut iterations = 0;
        loop {
            let splits = |s: &usize| {
                // Rotations leave as much in rows that were zero.
                beside[*s].abs() <= f64::EPSILON * largest
            };
            let last = (first..n - 1).find(splits).unwrap_or(n - 1);
            if last == first {
                break;
            }
            iterations += 1;
            if iterations > MAX_ITERATIONS {
                return None;
            }
            chase(&mut diagonal[first..=last], &mut beside[first..=last], |s, cos, sin| {
                rotate(first + s, cos, sin);
            });
        }
    }
    Some(())
}

/// One iteration from the last row to the first, shifted by the eigenvalue of the first two rows that is closer to the first entry
/// (Wilkinson's shift).
fn chase(diagonal: &mut [f64], beside: &mut [f64], mut rotate: impl FnMut(usize, f64, f64)) {
    let last = diagonal.len() - 1;
    let half = (diagonal[1] - diagonal[0]) / (2.0 * beside[0]);
    let mut ahead = diagonal[last] - diagonal[0] + beside[0] / (half + half.hypot(1.0).copysign(half));
    let (mut sin, mut cos, mut shift) = (1.0, 1.0, 0.0);
    for s in (0..last).rev() {
        let (over, next) = (sin * beside[s], cos * beside[s]);
        let length = (over * over + ahead * ahead).sqrt();
        beside[s + 1] = length;
        if length == 0.0 {
            // The matrix falls apart here.
            diagonal[s + 1] -= shift;
            beside[last] = 0.0;
            return;
        }
        (sin, cos) = (over / length, ahead / length);
        let moved = diagonal[s + 1] - shift;
        let slope = (diagonal[s] - moved) * sin + 2.0 * cos * next;
        shift = sin * slope;
        diagonal[s + 1] = moved + shift;
        ahead = cos * slope - next;
        rotate(s, cos, sin);
    }
    diagonal[0] -= shift;
    beside[0] = ahead;
    beside[last] = 0.0;
}
