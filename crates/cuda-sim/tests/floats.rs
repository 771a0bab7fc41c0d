//! f32 instructions and conversions against plain Rust: rounding, subnormals, NaN, infinities.

mod common;

use common::eval::To::{D, F, H, P, R};
use common::eval::{AWKWARD, eval, mismatch, operands, same};
use common::{Arg, Gpu, module};

/// Zeros, subnormals, the smallest normal, ones and neighbours, halves, large, infinite, NaNs of either sign.
const FLOATS: [u32; 22] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x3f7f_ffff,
    0x3f80_0000,
    0xbf80_0001,
    0x3f00_0000,
    0x3880_0000,
    0x387f_ffff,
    0x3300_0000,
    0x477f_efff,
    0x477f_f000,
    0x4f00_0000,
    0xcf00_0000,
    0x5f80_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_1234,
];

fn floats() -> Vec<[u64; 3]> {
    operands(&FLOATS.map(u64::from))
}

fn f(a: u64) -> f32 {
    f32::from_bits(a as u32)
}

fn bits(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits().into() }
}

#[test]
fn a_register_that_nobody_wrote_is_neither_zero_nor_nan() {
    // `same` runs an input in each lane.
    same("setp.eq.s32 %p4, %r9, 0;\nselp.b32 %r0, 1, 2, %p4;", R, &floats(), |_, _, _| 2);
    same(
        "mov.b32 %f4, %r9;\nsetp.nan.f32 %p4, %f4, %f4;\nselp.b32 %r0, 1, 2, %p4;",
        R,
        &floats(),
        |_, _, _| 2,
    );
    same("setp.eq.s64 %p4, %d19, 0;\nselp.b32 %r0, 1, 2, %p4;", R, &floats(), |_, _, _| 2);
}

#[test]
fn a_wrong_result_is_noticed() {
    let unfused = |a, b, c| bits(f(a) * f(b) + f(c));
    assert!(mismatch("fma.rn.f32 %f0, %f1, %f2, %f3;", F, &floats(), unfused).is_some());
    assert!(mismatch("add.rn.f32 %f0, %f1, %f2;", F, &floats(), |a, b, _| bits(f(a) - f(b))).is_some());
    // Arithmetic does not preserve a NaN's payload.
    assert!(mismatch("neg.f32 %f0, %f1;", F, &floats(), |a, _, _| (a ^ 0x8000_0000) & 0xffff_ffff).is_some());
}

#[test]
fn arithmetic_rounds_to_nearest_and_keeps_subnormals() {
    let inputs = floats();
    same("add.rn.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| bits(f(a) + f(b)));
    same("sub.rn.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| bits(f(a) - f(b)));
    same("mul.rn.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| bits(f(a) * f(b)));
    same("div.rn.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| bits(f(a) / f(b)));
    same("rcp.rn.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(1.0 / f(a)));
    same("sqrt.rn.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(f(a).sqrt()));
    same("fma.rn.f32 %f0, %f1, %f2, %f3;", F, &inputs, |a, b, c| bits(f(a).mul_add(f(b), f(c))));
    same("neg.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(-f(a)));
    same("abs.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(f(a).abs()));
    same("mul.rn.f32 %f0, %f1, 0f3FC00000;", F, &inputs, |a, _, _| bits(f(a) * 1.5));
    same("copysign.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| a & 0x8000_0000 | b & 0x7fff_ffff);
    same("selp.f32 %f0, %f1, 0f3F800000, %p3;", F, &inputs, |a, _, c| {
        if c & 1 == 1 { a & 0xffff_ffff } else { 0x3f80_0000 }
    });
    // Known answers: a tie above 1 rounds to even, a fused product keeps its last bit, half of the smallest subnormal is zero.
    same("add.rn.f32 %f0, 0f3F800000, 0f33800000;", F, &inputs, |_, _, _| 0x3f80_0000);
    same(
        "mov.f32 %f4, 0f3F800800;\nmov.f32 %f5, 0f3F7FF000;\nfma.rn.f32 %f0, %f4, %f5, 0fBF800000;",
        F,
        &inputs,
        |_, _, _| 0xb380_0000,
    );
    same("mov.f32 %f4, 0f00000001;\nmul.rn.f32 %f0, %f4, 0f3F000000;", F, &inputs, |_, _, _| 0);
}

/// Rounding towards zero gives the nearest result or its neighbour on the side of zero, and never goes beyond the exact result.
#[test]
fn arithmetic_can_round_towards_zero() {
    let inputs = floats();
    let chop = |nearest: f32, exact: f64| {
        let beyond = f64::from(nearest).abs() > exact.abs();
        bits(if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest })
    };
    // A product of two f32 is exact in f64.
    let product = |a: u64, b: u64| f64::from(f(a)) * f64::from(f(b));
    same("mul.rz.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| chop(f(a) * f(b), product(a, b)));
    same("fma.rz.f32 %f0, %f1, %f2, 0f80000000;", F, &inputs, |a, b, _| {
        chop(f(a).mul_add(f(b), -0.0), product(a, b))
    });
    same("sqrt.rz.f32 %f0, %f1;", F, &inputs, |a, _, _| {
        let nearest = f(a).sqrt();
        chop(nearest, if f64::from(nearest).powi(2) > f64::from(f(a)) { 0.0 } else { nearest.into() })
    });
    // The sum of 1 and 2⁻³⁰, which f64 holds exactly.
    same("add.rz.f32 %f0, 0fBF800000, 0f30800000;", F, &inputs, |_, _, _| 0xbf7f_ffff);
    same("sub.rz.f32 %f0, 0f3F800000, 0f30800000;", F, &inputs, |_, _, _| 0x3f7f_ffff);
    same("cvt.rz.f16.f32 %h0, %f1;", H, &inputs, |a, _, _| match a as u32 & 0x7fff_ffff {
        0x7f80_0001.. => 0x7fff,
        magnitude => {
            // The largest half whose magnitude does not exceed the float's: halves ascend with their bits.
            let halves = (0..0x7c01_u32)
                .rev()
                .find(|h| half::f16::from_bits(*h as u16).to_f32() <= f32::from_bits(magnitude));
            let largest = if magnitude == 0x7f80_0000 { 0x7c00 } else { halves.unwrap_or(0).min(0x7bff) };
            a >> 16 & 0x8000 | u64::from(largest)
        }
    });
}

#[test]
fn min_and_max_prefer_numbers_and_order_zeros() {
    let inputs = floats();
    let order = |a: f32, b: f32| if a == b { a.is_sign_negative() } else { a < b };
    same("min.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| match (f(a), f(b)) {
        (a, b) if a.is_nan() => bits(b),
        (a, b) if b.is_nan() => bits(a),
        (a, b) => bits(if order(a, b) { a } else { b }),
    });
    same("max.f32 %f0, %f1, %f2;", F, &inputs, |a, b, _| match (f(a), f(b)) {
        (a, b) if a.is_nan() => bits(b),
        (a, b) if b.is_nan() => bits(a),
        (a, b) => bits(if order(a, b) { b } else { a }),
    });
}

#[test]
fn comparisons_ordered_and_unordered() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let inputs = floats();
    type Check = (&'static str, fn(std::cmp::Ordering) -> bool);
    let ordered: [Check; 6] = [
        ("eq", |o| o == Equal),
        ("ne", |o| o != Equal),
        ("lt", |o| o == Less),
        ("le", |o| o != Greater),
        ("gt", |o| o == Greater),
        ("ge", |o| o != Less),
    ];
    for (name, holds) in ordered {
        let body = |suffix| format!("setp.{name}{suffix}.f32 %p0, %f1, %f2;");
        same(&body(""), P, &inputs, |a, b, _| f(a).partial_cmp(&f(b)).is_some_and(holds).into());
        same(&body("u"), P, &inputs, |a, b, _| f(a).partial_cmp(&f(b)).is_none_or(holds).into());
    }
    same("setp.num.f32 %p0, %f1, %f2;", P, &inputs, |a, b, _| u64::from(!f(a).is_nan() && !f(b).is_nan()));
    same("setp.nan.f32 %p0, %f1, %f2;", P, &inputs, |a, b, _| u64::from(f(a).is_nan() || f(b).is_nan()));
}

#[test]
fn integers_become_floats() {
    let mut values = AWKWARD.to_vec();
    // Integers between two floats: exactly half-way to an even and to an odd one, and just beside.
    values.extend([0x0100_0001, 0x0100_0003, 0xff_ffff_7fff_ffff, 0xff_ffff_8000_0000, 0xff_ffff_8000_0001]);
    let inputs = operands(&values);
    same("cvt.rn.f32.s32 %f0, %r1;", F, &inputs, |a, _, _| bits(a as i32 as f32));
    same("cvt.rn.f32.u32 %f0, %r1;", F, &inputs, |a, _, _| bits(a as u32 as f32));
    same("cvt.rn.f32.u64 %f0, %d1;", F, &inputs, |a, _, _| bits(a as f32));
    same("cvt.rn.f32.s64 %f0, %d1;", F, &inputs, |a, _, _| bits(a as i64 as f32));
    same("cvt.rn.f32.u16 %f0, %h1;", F, &inputs, |a, _, _| bits(a as u16 as f32));
    same("cvt.rn.f32.s8 %f0, %r1;", F, &inputs, |a, _, _| bits(a as i8 as f32));
    let below = |value: i128| {
        let nearest = value as f32;
        if nearest as i128 > value { nearest.next_down() } else { nearest }
    };
    same("cvt.rm.f32.u64 %f0, %d1;", F, &inputs, |a, _, _| bits(below(a.into())));
    same("cvt.rz.f32.u64 %f0, %d1;", F, &inputs, |a, _, _| bits(below(a.into())));
    same("cvt.rz.f32.s64 %f0, %d1;", F, &inputs, |a, _, _| {
        let value = i128::from(a as i64);
        bits(if value < 0 { -below(-value) } else { below(value) })
    });
    same("cvt.rp.f32.s32 %f0, %r1;", F, &inputs, |a, _, _| bits(0.0 - below(-i128::from(a as i32))));
}

#[test]
fn floats_become_integers() {
    let mut values = FLOATS.map(u64::from).to_vec();
    values.extend(
        [0.5f32, 1.5, 2.5, -0.5, -1.5, 2.0f32.powi(31) - 128.0, 1e10, -1e10, 255.5]
            .map(|x| u64::from(x.to_bits())),
    );
    let inputs = operands(&values);
    same("cvt.rni.s32.f32 %r0, %f1;", R, &inputs, |a, _, _| u64::from(f(a).round_ties_even() as i32 as u32));
    same("cvt.rzi.s32.f32 %r0, %f1;", R, &inputs, |a, _, _| u64::from(f(a) as i32 as u32));
    same("cvt.rmi.s32.f32 %r0, %f1;", R, &inputs, |a, _, _| u64::from(f(a).floor() as i32 as u32));
    same("cvt.rpi.u32.f32 %r0, %f1;", R, &inputs, |a, _, _| u64::from(f(a).ceil() as u32));
    same("cvt.rzi.u64.f32 %d0, %f1;", D, &inputs, |a, _, _| f(a) as u64);
    same("cvt.rzi.s64.f32 %d0, %f1;", D, &inputs, |a, _, _| f(a) as i64 as u64);
    same("cvt.rzi.u16.f32 %h0, %f1;", H, &inputs, |a, _, _| u64::from(f(a) as u16));
}

/// The values around which rounding to an integer turns: halves of all sizes and their neighbours, the last fractions below 2²³ and the
/// integers from there on, both zeros, subnormals, infinities and NaN.
#[test]
fn floats_become_integral_floats() {
    let halves = [0.5_f32, 1.5, 2.5, 1023.5, 4_194_303.5, 4_194_304.5, 8_388_606.5, 8_388_607.5];
    let whole = [8_388_608.0_f32, 8_388_609.0, 16_777_216.0, 16_777_218.0, 33_554_432.0, 1e30, f32::MAX];
    let around = halves.into_iter().chain(whole).flat_map(|x| [x, x.next_down(), x.next_up()]);
    let signed = around.flat_map(|x| [x, -x]).map(|x| u64::from(x.to_bits()));
    let inputs: Vec<_> = signed.chain(FLOATS.map(u64::from)).map(|a| [a, 0, 0]).chain(floats()).collect();
    same("cvt.rni.f32.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(f(a).round_ties_even()));
    same("cvt.rzi.f32.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(f(a).trunc()));
    same("cvt.rmi.f32.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(f(a).floor()));
    same("cvt.rpi.f32.f32 %f0, %f1;", F, &inputs, |a, _, _| bits(f(a).ceil()));
    // Known answers: ties go to the even integer, a small negative number becomes the negative zero.
    same("mov.f32 %f4, 0f40200000;\ncvt.rni.f32.f32 %f0, %f4;", F, &inputs, |_, _, _| bits(2.0));
    same("mov.f32 %f4, 0fBF000000;\ncvt.rni.f32.f32 %f0, %f4;", F, &inputs, |_, _, _| 0x8000_0000);
}

#[test]
fn integers_widen_and_narrow() {
    let inputs = operands(&AWKWARD);
    same("cvt.u64.u32 %d0, %r1;", D, &inputs, |a, _, _| u64::from(a as u32));
    same("cvt.s64.s32 %d0, %r1;", D, &inputs, |a, _, _| a as i32 as u64);
    same("cvt.s64.s16 %d0, %h1;", D, &inputs, |a, _, _| a as i16 as u64);
    same("cvt.u64.u16 %d0, %h1;", D, &inputs, |a, _, _| u64::from(a as u16));
    same("cvt.s32.s16 %r0, %h1;", R, &inputs, |a, _, _| u64::from(a as i16 as u32));
    same("cvt.u32.u16 %r0, %h1;", R, &inputs, |a, _, _| u64::from(a as u16));
    same("cvt.s32.s8 %r0, %r1;", R, &inputs, |a, _, _| u64::from(a as i8 as u32));
    same("cvt.u32.u8 %r0, %h1;", R, &inputs, |a, _, _| u64::from(a as u8));
    same("cvt.u16.u32 %h0, %r1;", H, &inputs, |a, _, _| u64::from(a as u16));
    same("cvt.s8.s32 %r0, %r1;", R, &inputs, |a, _, _| u64::from(a as i8 as u32));
    same("cvt.u32.s16 %r0, %r1;", R, &inputs, |a, _, _| u64::from(a as i16 as u32));
}

#[test]
fn halves_convert_like_the_half_crate() {
    let inputs = floats();
    same("cvt.rn.f16.f32 %h0, %f1;", H, &inputs, |a, _, _| {
        let value = half::f16::from_f32(f(a));
        if value.is_nan() { 0x7fff } else { value.to_bits().into() }
    });
    let halves: Vec<[u64; 3]> = (0..=0xffff).map(|a| [a, 0, 0]).collect();
    same("cvt.f32.f16 %f0, %h1;", F, &halves, |a, _, _| bits(half::f16::from_bits(a as u16).to_f32()));
    let back = "cvt.f32.f16 %f4, %h1;\ncvt.rn.f16.f32 %h0, %f4;";
    same(back, H, &halves, |a, _, _| if half::f16::from_bits(a as u16).is_nan() { 0x7fff } else { a });
}

/// Arguments are compared with the exact value: no result may be further off than the documented 2^-22.9.
#[test]
fn the_reciprocal_root_is_within_its_error() {
    let inputs = operands(&[
        0,
        1,
        0x007f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7fc0_0000,
        0x8000_0000,
        0x8000_0001,
        0xbf80_0000,
        0xff80_0000,
    ]);
    let results = eval("rsqrt.approx.ftz.f32 %f0, %f1;", F, &inputs);
    for (input, result) in inputs.iter().zip(results) {
        let (x, y) = (f32::from_bits(input[0] as u32), f32::from_bits(result as u32));
        if x.is_nan() || (x < 0.0 && !x.is_subnormal()) {
            assert_eq!(result, 0x7fff_ffff, "{x:e}");
        } else if x == 0.0 || x.is_subnormal() {
            assert_eq!(y, f32::INFINITY.copysign(x), "{x:e}");
        } else {
            let exact = f64::from(x).sqrt().recip();
            assert!((f64::from(y) - exact).abs() <= 2f64.powf(-22.9) * exact, "{x:e} gives {y:e}");
        }
    }
}

/// The first operand is the upper half; halves are rounded to the nearest, ties to even, and a NaN is `0x7fff`.
#[test]
fn pairs_of_bfloats_are_packed() {
    let gpu = Gpu::new();
    let body = "ld.param.u64 %d1, [out];\nld.param.f32 %f1, [a];\nld.param.f32 %f2, [b];\ncvt.rn.bf16x2.f32 %r1, %f1, %f2;\nst.global.u32 [%d1], %r1;";
    let text = module(".param .u64 out, .param .f32 a, .param .f32 b", body);
    assert!(gpu.load(&text).unwrap_err().text.contains("needs .target sm_80, not sm_70"));
    let (kernel, out) = (gpu.kernel(&text.replace("sm_70", "sm_80"), "k"), gpu.alloc(4));
    let values = [
        0u32,
        0x8000_0000,
        1,
        0x3f80_0000,
        0x3f80_8000,
        0x3f81_8000,
        0x3f80_8001,
        0x7f7f_ffff,
        0xff7f_7fff,
        0xff80_0000,
        0x7f80_0001,
        0xffff_ffff,
        0x0000_8001,
        0x007f_ffff,
    ];
    for (i, a) in values.into_iter().enumerate() {
        let b = values[(i * 5 + 3) % values.len()];
        gpu.launch(kernel, 1, 1, &[Arg::U64(out), Arg::U32(a), Arg::U32(b)]).unwrap();
        let [high, low] = [a, b].map(|bits| match f32::from_bits(bits) {
            value if value.is_nan() => 0x7fff,
            value => u32::from(half::bf16::from_f32(value).to_bits()),
        });
        assert_eq!(gpu.read::<u32>(out, 1).unwrap(), [high << 16 | low], "{a:#x} {b:#x}");
    }
}
