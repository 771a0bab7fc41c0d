//! Double-double arithmetic: 106 bits, for matrices that lose digits when they are inverted.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// The unevaluated sum `hi + lo` of two floats.
#[derive(Clone, Copy, Debug)]
pub struct Dd {
    pub hi: f64,
    pub lo: f64,
}

pub const ZERO: Dd = Dd { hi: 0.0, lo: 0.0 };
pub const ONE: Dd = Dd { hi: 1.0, lo: 0.0 };

fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

fn quick(a: f64, b: f64) -> Dd {
    let hi = a + b;
    Dd { hi, lo: b - (hi - a) }
}

impl From<f64> for Dd {
    fn from(hi: f64) -> Dd {
        Dd { hi, lo: 0.0 }
    }
}

impl From<f32> for Dd {
    fn from(value: f32) -> Dd {
        f64::from(value).into()
    }
}

impl Add for Dd {
    type Output = Dd;
    fn add(self, other: Dd) -> Dd {
        let (high, low) = two_sum(self.hi, other.hi);
        let (third, fourth) = two_sum(self.lo, other.lo);
        let once = quick(high, low + third);
        quick(once.hi, once.lo + fourth)
    }
}

impl Neg for Dd {
    type Output = Dd;
    fn neg(self) -> Dd {
        Dd { hi: -self.hi, lo: -self.lo }
    }
}

impl Sub for Dd {
    type Output = Dd;
    fn sub(self, other: Dd) -> Dd {
        self + -other
    }
}

impl Mul for Dd {
    type Output = Dd;
    fn mul(self, other: Dd) -> Dd {
        let product = self.hi * other.hi;
        let error = self.hi.mul_add(other.hi, -product);
        quick(product, error + (self.hi * other.lo + self.lo * other.hi))
    }
}

impl Div for Dd {
    type Output = Dd;
    fn div(self, other: Dd) -> Dd {
        let first = Dd::from(self.hi / other.hi);
        let rest = self - first * other;
        let second = Dd::from(rest.hi / other.hi);
        let rest = rest - second * other;
        first + second + Dd::from(rest.hi / other.hi)
    }
}

impl Dd {
    pub fn sqrt(self) -> Dd {
        let root = Dd::from(self.hi.sqrt());
        root + (self - root * root) / (root + root)
    }

    pub fn value(self) -> f64 {
        self.hi + self.lo
    }
}
