//! The register operations that kernels seldom use: compiled once, for the plain target.

use super::convert::{bf16_from_f32, convert};
use super::lanes::Writer;
use super::scalar::*;
use super::toward_zero;
use crate::ptx::{Code::*, Inst, Kernel};

impl<const FULL: bool> Writer<'_, FULL> {
    #[inline(never)]
    #[rustfmt::skip]
    pub(super) fn rare(&mut self, kernel: &Kernel, i: &Inst) {
        match i.code {
            Not16 => self.x_x(i, |a| !a & 0xffff),
            Neg16 => self.x_x(i, |a| a.wrapping_neg() & 0xffff),
            Abs32 => self.x_x(i, |a| (a as i32).wrapping_abs() as u32),
            Abs16 => self.x_x(i, |a| s16(a).wrapping_abs() as u32 & 0xffff),
            Clz32 => self.x_x(i, u32::leading_zeros),
            Brev32 => self.x_x(i, u32::reverse_bits),
            Popc32 => self.x_x(i, u32::count_ones),

            Add16 => self.x_xx(i, |a, b| (a + b) & 0xffff),
            Sub16 => self.x_xx(i, |a, b| a.wrapping_sub(b) & 0xffff),
            MulLo16 => self.x_xx(i, |a, b| a.wrapping_mul(b) & 0xffff),
            MulHiS32 => self.x_xx(i, mul_hi_s32),
            MulHiU16 => self.x_xx(i, |a, b| a.wrapping_mul(b) >> 16),
            MulHiS16 => self.x_xx(i, |a, b| (s16(a).wrapping_mul(s16(b)) >> 16) as u32 & 0xffff),
            MulWideU16 => self.x_xx(i, u32::wrapping_mul),
            MulWideS16 => self.x_xx(i, |a, b| s16(a).wrapping_mul(s16(b)) as u32),
            Shl16 => self.x_xx(i, |a, b| if b > 15 { 0 } else { a << b & 0xffff }),
            ShrS16 => self.x_xx(i, |a, b| (s16(a) >> b.min(31)) as u32 & 0xffff),
            MinS16 => self.x_xx(i, |a, b| s16(a).min(s16(b)) as u32 & 0xffff),
            MaxS16 => self.x_xx(i, |a, b| s16(a).max(s16(b)) as u32 & 0xffff),
            DivU32 => self.x_xx(i, |a, b| a.checked_div(b).unwrap_or(u32::MAX)),
            RemU32 => self.x_xx(i, |a, b| a.checked_rem(b).unwrap_or(u32::MAX)),
            DivS32 => self.x_xx(i, |a, b| div_s64((a as i32).into(), (b as i32).into()) as u32),
            RemS32 => self.x_xx(i, |a, b| rem_s64((a as i32).into(), (b as i32).into()) as u32),
            DivS16 => self.x_xx(i, |a, b| div_s64(s16(a).into(), s16(b).into()) as u32 & 0xffff),
            RemS16 => self.x_xx(i, |a, b| rem_s64(s16(a).into(), s16(b).into()) as u32 & 0xffff),

            MadLo16 => self.x_xxx(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
            MadHiU32 => self.x_xxx(i, |a, b, c| mul_hi_u32(a, b).wrapping_add(c)),
            MadHiS32 => self.x_xxx(i, |a, b, c| mul_hi_s32(a, b).wrapping_add(c)),
            ShfLClamp => self.x_xxx(i, |a, b, c| if c > 31 { a } else { funnel_left(a, b, c) }),
            ShfRClamp => self.x_xxx(i, |a, b, c| if c > 31 { b } else { funnel_right(a, b, c) }),
            Prmt => self.x_xxx(i, permute),
            BfeU32 => self.x_xxx(i, |a, b, c| extract(a.into(), b, c, 32, false) as u32),
            BfeS32 => self.x_xxx(i, |a, b, c| extract(a.into(), b, c, 32, true) as u32),
            Bfi32 => self.x_xxxx(i, |a, b, c, d| insert(a.into(), b.into(), c, d, 32) as u32),
            Lop3 => self.x_xxx(i, |a, b, c| lookup(a, b, c, i.imm)),
            Slct32 => self.x_xxx(i, |a, b, c| if c as i32 >= 0 { a } else { b }),

            AddCc => self.carrying(i, true, |a, b, _| add_with_carry(a, b, 0)),
            Addc => self.carrying(i, false, add_with_carry),
            AddcCc => self.carrying(i, true, add_with_carry),
            SubCc => self.carrying(i, true, |a, b, _| sub_with_borrow(a, b, 0)),
            Subc => self.carrying(i, false, sub_with_borrow),
            SubcCc => self.carrying(i, true, sub_with_borrow),

            LtS16 => self.x_xx(i, |a, b| all(s16(a) < s16(b))),
            LeS16 => self.x_xx(i, |a, b| all(s16(a) <= s16(b))),

            Neg64 => self.y_y(i, u64::wrapping_neg),
            Abs64 => self.y_y(i, |a| (a as i64).wrapping_abs() as u64),
            Clz64 => self.x_y(i, u64::leading_zeros),
            Brev64 => self.y_y(i, u64::reverse_bits),
            Popc64 => self.x_y(i, u64::count_ones),
            MulHiU64 => self.y_yy(i, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
            MulHiS64 => self.y_yy(i, |a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
            MinU64 => self.y_yy(i, |a, b| a.min(b)),
            MaxU64 => self.y_yy(i, |a, b| a.max(b)),
            MinS64 => self.y_yy(i, |a, b| (a as i64).min(b as i64) as u64),
            MaxS64 => self.y_yy(i, |a, b| (a as i64).max(b as i64) as u64),
            DivU64 => self.y_yy(i, |a, b| a.checked_div(b).unwrap_or(u64::MAX)),
            RemU64 => self.y_yy(i, |a, b| a.checked_rem(b).unwrap_or(u64::MAX)),
            DivS64 => self.y_yy(i, |a, b| div_s64(a as i64, b as i64) as u64),
            RemS64 => self.y_yy(i, |a, b| rem_s64(a as i64, b as i64) as u64),
            MadWideS32 => self.y_xxy(i, |a, b, c| ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)),
            BfeU64 => self.y_yxx(i, |a, b, c| extract(a, b, c, 64, false)),
            BfeS64 => self.y_yxx(i, |a, b, c| extract(a, b, c, 64, true)),
            Bfi64 => self.y_yyxx(i, |a, b, c, d| insert(a, b, c, d, 64)),
            Slct64 => self.y_yyx(i, |a, b, c| if c as i32 >= 0 { a } else { b }),

            DivF32 => self.x_xx(i, f2(|a, b| a / b)),
            MinF32 => self.x_xx(i, f2(min)),
            MaxF32 => self.x_xx(i, f2(max)),
            AddRzF32 => self.x_xx(i, f2(|a, b| toward_zero::fma(a, 1.0, b, a + b))),
            SubRzF32 => self.x_xx(i, f2(|a, b| toward_zero::fma(a, 1.0, -b, a - b))),
            MulRzF32 => self.x_xx(i, f2(|a, b| toward_zero::fma(a, b, 0.0, a * b))),
            FmaRzF32 => self.x_xxx(i, |a, b, c| {
                let [a, b, c] = [a, b, c].map(f32::from_bits);
                canonical(toward_zero::fma(a, b, c, a.mul_add(b, c)))
            }),
            SqrtRzF32 => self.x_x(i, f1(toward_zero::sqrt)),
            RsqrtApproxF32 => {
                let how = self.registers.approximation;
                self.x_x(i, |a| how.rsqrt_ftz(a));
            }
            Bf16x2FromF32 => self.x_xx(i, |a, b| bf16_from_f32(a) << 16 | bf16_from_f32(b)),
            RcpF32 => self.x_x(i, f1(|a| 1.0 / a)),
            CopysignF32 => self.x_xx(i, |a, b| a & 0x8000_0000 | b & 0x7fff_ffff),

            Convert => self.convert(kernel, i),

            Pack16x2 => self.x_xx(i, |a, b| a | b << 16),
            Pack32x2 => self.y_xx(i, |a, b| u64::from(a) | u64::from(b) << 32),
            Pack16x4 => self.y_xxxx(i, |a, b, c, d| u64::from(a | b << 16) | u64::from(c | d << 16) << 32),
            Unpack16x2 => self.unpack16x2(i),
            Unpack32x2 => self.unpack64(i, 32),
            Unpack16x4 => self.unpack64(i, 16),

            // `alu` has the other register operations; memory and control flow are handled elsewhere.
            _ => unreachable!("{:?} is not an operation of registers", i.code),
        }
    }

    fn convert(&mut self, kernel: &Kernel, i: &Inst) {
        let how = &kernel.converts[i.imm as usize];
        match (how.register_bits == 64, how.from_wide) {
            (true, true) => self.y_y(i, |a| convert(how, a)),
            (true, false) => self.y_x(i, |a| convert(how, a.into())),
            (false, true) => self.x_y(i, |a| convert(how, a) as u32),
            (false, false) => self.x_x(i, |a| convert(how, a.into()) as u32),
        }
    }
}

#[inline(always)]
fn add_with_carry(a: u32, b: u32, carry: u32) -> (u32, u32) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, (sum >> 32) as u32)
}

#[inline(always)]
fn sub_with_borrow(a: u32, b: u32, borrow: u32) -> (u32, u32) {
    let difference = u64::from(a).wrapping_sub(u64::from(b)).wrapping_sub(u64::from(borrow));
    (difference as u32, (difference >> 63) as u32)
}
