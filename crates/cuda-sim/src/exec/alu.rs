//! The register operations that fill inner loops, one line each; rarer operations are in `rare`.

use super::convert::{f16_from_f32, f32_from_f16};
use super::lanes::Writer;
use super::scalar::{all, canonical, f1, f2, fp, funnel_left, funnel_right, mul_hi_u32, s16};
use crate::ptx::{Code::*, Inst, Kernel};

impl<const FULL: bool> Writer<'_, FULL> {
    /// Executes an operation of kind [`Alu`](crate::ptx::Kind::Alu).
    #[inline(always)]
    #[rustfmt::skip]
    pub(super) fn alu(&mut self, kernel: &Kernel, i: &Inst) {
        match i.code {
            Mov32 => self.x_x(i, |a| a),
            Not32 => self.x_x(i, |a| !a),
            Neg32 => self.x_x(i, u32::wrapping_neg),

            Add32 => self.x_xx(i, u32::wrapping_add),
            Sub32 => self.x_xx(i, u32::wrapping_sub),
            MulLo32 => self.x_xx(i, u32::wrapping_mul),
            MulHiU32 => self.x_xx(i, mul_hi_u32),
            And32 => self.x_xx(i, |a, b| a & b),
            Or32 => self.x_xx(i, |a, b| a | b),
            Xor32 => self.x_xx(i, |a, b| a ^ b),
            Shl32 => self.x_xx(i, |a, b| if b > 31 { 0 } else { a << b }),
            ShrU32 => self.x_xx(i, |a, b| if b > 31 { 0 } else { a >> b }),
            ShrS32 => self.x_xx(i, |a, b| (a as i32 >> b.min(31)) as u32),
            MinU32 => self.x_xx(i, |a, b| a.min(b)),
            MaxU32 => self.x_xx(i, |a, b| a.max(b)),
            MinS32 => self.x_xx(i, |a, b| (a as i32).min(b as i32) as u32),
            MaxS32 => self.x_xx(i, |a, b| (a as i32).max(b as i32) as u32),

            MadLo32 => self.x_xxx(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            ShfLWrap => self.x_xxx(i, |a, b, c| funnel_left(a, b, c & 31)),
            ShfRWrap => self.x_xxx(i, |a, b, c| funnel_right(a, b, c & 31)),
            Selp32 => self.x_xxx(i, |a, b, p| a & p | b & !p),

            Eq32 => self.x_xx(i, |a, b| all(a == b)),
            Ne32 => self.x_xx(i, |a, b| all(a != b)),
            LtU32 => self.x_xx(i, |a, b| all(a < b)),
            LeU32 => self.x_xx(i, |a, b| all(a <= b)),
            LtS32 => self.x_xx(i, |a, b| all((a as i32) < b as i32)),
            LeS32 => self.x_xx(i, |a, b| all(a as i32 <= b as i32)),
            Eq64 => self.x_yy(i, |a, b| all(a == b)),
            Ne64 => self.x_yy(i, |a, b| all(a != b)),
            LtU64 => self.x_yy(i, |a, b| all(a < b)),
            LeU64 => self.x_yy(i, |a, b| all(a <= b)),
            LtS64 => self.x_yy(i, |a, b| all((a as i64) < b as i64)),
            LeS64 => self.x_yy(i, |a, b| all(a as i64 <= b as i64)),
            EqF32 => self.x_xx(i, fp(|a, b| a == b)),
            NeF32 => self.x_xx(i, fp(|a, b| a != b && !a.is_nan() && !b.is_nan())),
            LtF32 => self.x_xx(i, fp(|a, b| a < b)),
            LeF32 => self.x_xx(i, fp(|a, b| a <= b)),
            EquF32 => self.x_xx(i, fp(|a, b| a == b || a.is_nan() || b.is_nan())),
            NeuF32 => self.x_xx(i, fp(|a, b| a != b)),
            LtuF32 => self.x_xx(i, fp(|a, b| a < b || a.is_nan() || b.is_nan())),
            LeuF32 => self.x_xx(i, fp(|a, b| a <= b || a.is_nan() || b.is_nan())),
            NumF32 => self.x_xx(i, fp(|a, b| !a.is_nan() && !b.is_nan())),
            NanF32 => self.x_xx(i, fp(|a, b| a.is_nan() || b.is_nan())),

            Mov64 => self.y_y(i, |a| a),
            Not64 => self.y_y(i, |a| !a),
            Add64 => self.y_yy(i, u64::wrapping_add),
            Sub64 => self.y_yy(i, u64::wrapping_sub),
            MulLo64 => self.y_yy(i, u64::wrapping_mul),
            And64 => self.y_yy(i, |a, b| a & b),
            Or64 => self.y_yy(i, |a, b| a | b),
            Xor64 => self.y_yy(i, |a, b| a ^ b),
            Shl64 => self.y_yx(i, |a, b| if b > 63 { 0 } else { a << b }),
            ShrU64 => self.y_yx(i, |a, b| if b > 63 { 0 } else { a >> b }),
            ShrS64 => self.y_yx(i, |a, b| (a as i64 >> b.min(63)) as u64),
            MadLo64 => self.y_yyy(i, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            MulWideU32 => self.y_xx(i, |a, b| u64::from(a) * u64::from(b)),
            MulWideS32 => self.y_xx(i, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
            MadWideU32 => self.y_xxy(i, |a, b, c| (u64::from(a) * u64::from(b)).wrapping_add(c)),
            Selp64 => self.y_yyx(i, |a, b, p| if p == 0 { b } else { a }),

            AddF32 => self.x_xx(i, f2(|a, b| a + b)),
            SubF32 => self.x_xx(i, f2(|a, b| a - b)),
            MulF32 => self.x_xx(i, f2(|a, b| a * b)),
            FmaF32 => self.x_xxx(i, |a, b, c| canonical(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))),
            NegF32 => self.x_x(i, f1(|a| -a)),
            AbsF32 => self.x_x(i, f1(f32::abs)),
            SqrtF32 => self.x_x(i, f1(f32::sqrt)),

            U64FromU32 => self.y_x(i, u64::from),
            S64FromS32 => self.y_x(i, |a| a as i32 as u64),
            Low32 => self.x_y(i, |a| a as u32),
            Low16 => self.x_x(i, |a| a & 0xffff),
            S32FromS16 => self.x_x(i, |a| s16(a) as u32),
            F32FromS32 => self.x_x(i, |a| (a as i32 as f32).to_bits()),
            F32FromU32 => self.x_x(i, |a| (a as f32).to_bits()),
            F32FromU64 => self.x_y(i, |a| (a as f32).to_bits()),
            F32FromF16 => self.x_x(i, f32_from_f16),
            F16FromF32 => self.x_x(i, f16_from_f32),
            NearestF32 => self.x_x(i, f1(f32::round_ties_even)),

            _ => self.rare(kernel, i),
        }
    }
}
