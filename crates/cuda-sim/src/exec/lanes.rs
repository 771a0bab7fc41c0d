//! Registers of 32 lanes, and loops over them.

use super::approx::Approximation;
use crate::ptx::Inst;

/// The number of threads in a warp.
pub(super) const WARP: usize = 32;

/// One register of every thread of a warp; aligned so that a vector load never crosses a cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
pub(super) struct Lanes<T>(pub [T; WARP]);

/// The two register files: `x` of at most 32 bits, `y` of 64.
#[derive(Clone)]
pub(super) struct Registers {
    pub x: Vec<Lanes<u32>>,
    pub y: Vec<Lanes<u64>>,
    /// What approximate instructions return.
    pub approximation: Approximation,
}

impl Registers {
    /// Registers that were never written: on hardware they hold anything, here `unwritten` in even lanes and in odd ones.
    pub(super) fn new([x, y]: [usize; 2], unwritten: [u32; 2]) -> Self {
        let narrow = std::array::from_fn(|lane| unwritten[lane % 2]);
        let wide = narrow.map(|value| u64::from(value) << 32 | u64::from(value));
        let approximation = Approximation::default();
        Self { x: vec![Lanes(narrow); x], y: vec![Lanes(wide); y], approximation }
    }

    /// A predicate as one bit per lane.
    #[inline(always)]
    pub(super) fn bits(&self, predicate: u16) -> u32 {
        let mut bits = 0;
        for (lane, value) in self.x[usize::from(predicate)].0.iter().enumerate() {
            bits |= (value & 1) << lane;
        }
        bits
    }
}

/// Writes results: to all lanes if `FULL`, else to the lanes whose bit is set in `mask`. The other lanes are computed too,
/// which is cheaper than a test per lane and harmless, because no register operation can fail.
pub(super) struct Writer<'a, const FULL: bool> {
    pub registers: &'a mut Registers,
    pub mask: u32,
}

/// A method that writes results to a register of one file.
macro_rules! set {
    ($name:ident, $file:ident, $value:ty) => {
        #[inline(always)]
        pub(super) fn $name(&mut self, d: u16, out: [$value; WARP]) {
            let to = &mut self.registers.$file[usize::from(d)].0;
            if FULL {
                *to = out;
            } else {
                for (lane, (to, out)) in to.iter_mut().zip(out).enumerate() {
                    let mask = <$value>::from(self.mask >> lane & 1).wrapping_neg();
                    *to = out & mask | *to & !mask;
                }
            }
        }
    };
}

/// A method that applies a function to every lane. Its name lists the files of the result and the operands: `y_xxy` computes
/// a 64-bit register from two of 32 bits and one of 64.
macro_rules! map {
    ($name:ident, $set:ident, $out:ty, $($file:ident.$operand:ident: $in:ty),+) => {
        #[inline(always)]
        pub(super) fn $name(&mut self, i: &Inst, f: impl Fn($($in),+) -> $out) {
            let mut out = [0; WARP];
            $(let $operand = &self.registers.$file[usize::from(i.$operand)].0;)+
            for lane in 0..WARP {
                out[lane] = f($($operand[lane]),+);
            }
            self.$set(i.d, out);
        }
    };
}

impl<const FULL: bool> Writer<'_, FULL> {
    set!(set_x, x, u32);
    set!(set_y, y, u64);

    map!(x_x, set_x, u32, x.a: u32);
    map!(x_xx, set_x, u32, x.a: u32, x.b: u32);
    map!(x_xxx, set_x, u32, x.a: u32, x.b: u32, x.c: u32);
    map!(x_xxxx, set_x, u32, x.a: u32, x.b: u32, x.c: u32, x.e: u32);
    map!(x_y, set_x, u32, y.a: u64);
    map!(x_yy, set_x, u32, y.a: u64, y.b: u64);
    map!(y_x, set_y, u64, x.a: u32);
    map!(y_xx, set_y, u64, x.a: u32, x.b: u32);
    map!(y_xxy, set_y, u64, x.a: u32, x.b: u32, y.c: u64);
    map!(y_xxxx, set_y, u64, x.a: u32, x.b: u32, x.c: u32, x.e: u32);
    map!(y_y, set_y, u64, y.a: u64);
    map!(y_yy, set_y, u64, y.a: u64, y.b: u64);
    map!(y_yx, set_y, u64, y.a: u64, x.b: u32);
    map!(y_yxx, set_y, u64, y.a: u64, x.b: u32, x.c: u32);
    map!(y_yyx, set_y, u64, y.a: u64, y.b: u64, x.c: u32);
    map!(y_yyy, set_y, u64, y.a: u64, y.b: u64, y.c: u64);
    map!(y_yyxx, set_y, u64, y.a: u64, y.b: u64, x.c: u32, x.e: u32);

    /// Adds with a carry: `f` maps `(a, b, carry in)` to `(d, carry out)`; register `c` holds the carry.
    #[inline(always)]
    pub(super) fn carrying(&mut self, i: &Inst, keep: bool, f: impl Fn(u32, u32, u32) -> (u32, u32)) {
        let x = |register: u16| self.registers.x[usize::from(register)].0;
        let (a, b, c) = (x(i.a), x(i.b), x(i.c));
        let (mut out, mut carry) = ([0; WARP], [0; WARP]);
        for lane in 0..WARP {
            (out[lane], carry[lane]) = f(a[lane], b[lane], c[lane]);
        }
        self.set_x(i.d, out);
        if keep {
            self.set_x(i.c, carry);
        }
    }

    /// Splits register `a` of 32 bits into parts of 16 bits.
    pub(super) fn unpack16x2(&mut self, i: &Inst) {
        let a = self.registers.x[usize::from(i.a)].0;
        self.set_x(i.d, a.map(|a| a & 0xffff));
        self.set_x(i.b, a.map(|a| a >> 16));
    }

    /// Splits register `a` of 64 bits into parts of `bits`.
    pub(super) fn unpack64(&mut self, i: &Inst, bits: u32) {
        let a = self.registers.y[usize::from(i.a)].0;
        for (part, to) in [i.d, i.b, i.c, i.e].into_iter().take(64 / bits as usize).enumerate() {
            let shift = bits * part as u32;
            self.set_x(to, a.map(|a| (a >> shift & ((1 << bits) - 1)) as u32));
        }
    }
}
