//! Integer instructions against plain Rust, on awkward and arbitrary operands.

mod common;

use common::eval::To::{D, H, P, R};
use common::eval::{AWKWARD, To, mismatch, operands, same};

/// Instructions, each with the function that it should compute.
type Table<'a, T> = &'a [(&'a str, fn(T, T, T) -> T)];

fn table32(rows: Table<u32>) {
    let inputs = operands(&AWKWARD);
    for (body, f) in rows {
        same(body, R, &inputs, |a, b, c| f(a as u32, b as u32, c as u32).into());
    }
}

fn table64(rows: Table<u64>) {
    let inputs = operands(&AWKWARD);
    for (body, f) in rows {
        same(body, D, &inputs, f);
    }
}

fn table16(rows: Table<u16>) {
    let inputs = operands(&AWKWARD);
    for (body, f) in rows {
        same(body, H, &inputs, |a, b, c| f(a as u16, b as u16, c as u16).into());
    }
}

#[test]
fn a_wrong_result_is_noticed() {
    let inputs = operands(&AWKWARD);
    assert!(
        mismatch("sub.s32 %r0, %r1, %r2;", R, &inputs, |a, b, _| u64::from(
            (a as u32).wrapping_add(b as u32)
        ))
        .is_some()
    );
    assert!(
        mismatch("shr.s32 %r0, %r1, %r2;", R, &inputs, |a, b, _| u64::from((a as u32) >> (b as u32).min(31)))
            .is_some()
    );
}

#[test]
fn sums_products_and_logic_of_32_bits() {
    table32(&[
        ("add.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_add(b)),
        ("sub.u32 %r0, %r1, %r2;", |a, b, _| a.wrapping_sub(b)),
        ("add.s32 %r0, %r1, -7;", |a, _, _| a.wrapping_sub(7)),
        ("mul.lo.s32 %r0, %r1, %r2;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u32 %r0, %r1, %r2;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 32) as u32),
        ("mul.hi.s32 %r0, %r1, %r2;", |a, b, _| ((i128::from(a as i32) * i128::from(b as i32)) >> 32) as u32),
        ("mad.lo.s32 %r0, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.hi.u32 %r0, %r1, %r2, %r3;", |a, b, c| {
            (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)
        }),
        ("mad.hi.s32 %r0, %r1, %r2, %r3;", |a, b, c| {
            (((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32).wrapping_add(c)
        }),
        ("and.b32 %r0, %r1, %r2;", |a, b, _| a & b),
        ("or.b32 %r0, %r1, %r2;", |a, b, _| a | b),
        ("xor.b32 %r0, %r1, -2147483648;", |a, _, _| a ^ 0x8000_0000),
        ("not.b32 %r0, %r1;", |a, _, _| !a),
        ("neg.s32 %r0, %r1;", |a, _, _| 0u32.wrapping_sub(a)),
        ("abs.s32 %r0, %r1;", |a, _, _| if a >> 31 == 1 { 0u32.wrapping_sub(a) } else { a }),
        ("min.u32 %r0, %r1, %r2;", |a, b, _| if a < b { a } else { b }),
        ("max.u32 %r0, %r1, %r2;", |a, b, _| if a < b { b } else { a }),
        ("min.s32 %r0, %r1, %r2;", |a, b, _| if (a as i32) < (b as i32) { a } else { b }),
        ("max.s32 %r0, %r1, %r2;", |a, b, _| if (a as i32) < (b as i32) { b } else { a }),
        ("mul.wide.u16 %r0, %h1, %h2;", |a, b, _| (a & 0xffff) * (b & 0xffff)),
        ("mul.wide.s16 %r0, %h1, %h2;", |a, b, _| (i32::from(a as i16) * i32::from(b as i16)) as u32),
    ]);
}

#[test]
fn shifts_clamp_and_funnels_wrap() {
    table32(&[
        ("shl.b32 %r0, %r1, %r2;", |a, b, _| (u64::from(a) << b.min(40)) as u32),
        ("shr.u32 %r0, %r1, %r2;", |a, b, _| (u64::from(a) >> b.min(40)) as u32),
        ("shr.b32 %r0, %r1, %r2;", |a, b, _| (u64::from(a) >> b.min(40)) as u32),
        ("shr.s32 %r0, %r1, %r2;", |a, b, _| (i64::from(a as i32) >> b.min(40)) as u32),
        ("shl.b32 %r0, %r1, 32;", |_, _, _| 0),
        ("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
            ((u64::from(b) << 32 | u64::from(a)) << (c % 32) >> 32) as u32
        }),
        ("shf.r.wrap.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
            ((u64::from(b) << 32 | u64::from(a)) >> (c % 32)) as u32
        }),
        ("shf.l.clamp.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
            ((u128::from(b) << 32 | u128::from(a)) << c.min(32) >> 32) as u32
        }),
        ("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
            ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32
        }),
        ("shf.l.wrap.b32 %r0, %r1, %r1, 7;", |a, _, _| a.rotate_left(7)),
    ]);
    table64(&[
        ("shl.b64 %d0, %d1, %r2;", |a, b, _| (u128::from(a) << (b as u32).min(64)) as u64),
        ("shr.u64 %d0, %d1, %r2;", |a, b, _| (u128::from(a) >> (b as u32).min(64)) as u64),
        ("shr.s64 %d0, %d1, %r2;", |a, b, _| (i128::from(a as i64) >> (b as u32).min(64)) as u64),
    ]);
    let inputs = operands(&AWKWARD);
    same("shl.b16 %h0, %h1, %r2;", H, &inputs, |a, b, _| ((a & 0xffff) << (b as u32).min(20)) & 0xffff);
    same("shr.u16 %h0, %h1, %r2;", H, &inputs, |a, b, _| (a & 0xffff) >> (b as u32).min(20));
    same("shr.s16 %h0, %h1, %r2;", H, &inputs, |a, b, _| {
        u64::from((i64::from(a as i16) >> (b as u32).min(20)) as u16)
    });
}

#[test]
fn bits_are_counted_reversed_and_moved() {
    fn extract(a: u64, b: u64, c: u64, width: usize, signed: bool) -> u64 {
        // As the PTX manual writes it.
        let (position, length, msb) = ((b & 255) as usize, (c & 255) as usize, width - 1);
        let bit = |i: usize| a >> i & 1;
        let sign = if !signed || length == 0 { 0 } else { bit((position + length - 1).min(msb)) };
        (0..width)
            .map(|i| (if i < length && position + i <= msb { bit(position + i) } else { sign }) << i)
            .sum()
    }
    fn insert(a: u64, b: u64, position: usize, length: usize, width: usize) -> u64 {
        let source = |i: usize| {
            if (position..position + length).contains(&i) { a >> (i - position) & 1 } else { b >> i & 1 }
        };
        (0..width).map(|i| source(i) << i).sum()
    }
    let inputs = operands(&AWKWARD);
    let low = |a: u64| a & 0xffff_ffff;
    same("bfe.u32 %r0, %r1, %r2, %r3;", R, &inputs, |a, b, c| extract(a, b, c, 32, false));
    same("bfe.s32 %r0, %r1, %r2, %r3;", R, &inputs, |a, b, c| extract(a, b, c, 32, true));
    same("bfe.u64 %d0, %d1, %r2, %r3;", D, &inputs, |a, b, c| extract(a, b, c, 64, false));
    same("bfe.s64 %d0, %d1, %r2, %r3;", D, &inputs, |a, b, c| extract(a, b, c, 64, true));
    for (position, length) in [(0, 32), (5, 9), (31, 4), (16, 0), (32, 8), (63, 1), (40, 200)] {
        let (body32, body64) = (
            format!("bfi.b32 %r0, %r1, %r2, {position}, {length};"),
            format!("bfi.b64 %d0, %d1, %d2, {position}, {length};"),
        );
        same(&body32, R, &inputs, |a, b, _| insert(low(a), low(b), position, length, 32));
        same(&body64, D, &inputs, |a, b, _| insert(a, b, position, length, 64));
    }
    table32(&[
        ("clz.b32 %r0, %r1;", |a, _, _| (0..32).take_while(|i| a >> (31 - i) & 1 == 0).count() as u32),
        ("popc.b32 %r0, %r1;", |a, _, _| (0..32).map(|i| a >> i & 1).sum()),
        ("brev.b32 %r0, %r1;", |a, _, _| (0..32).map(|i| (a >> i & 1) << (31 - i)).sum()),
        ("prmt.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
            let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
            u32::from_le_bytes([0, 1, 2, 3].map(|i| {
                let selector = (c >> (4 * i)) as usize;
                let byte = bytes[selector & 7];
                if selector & 8 == 0 {
                    byte
                } else if byte >= 128 {
                    255
                } else {
                    0
                }
            }))
        }),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0xCA;", |a, b, c| a & b | !a & c),
        ("lop3.b32 %r0, %r1, %r2, %r3, 150;", |a, b, c| a ^ b ^ c),
        ("lop3.b32 %r0, %r1, %r2, %r3, 0x10;", |a, b, c| a & !b & !c),
    ]);
    same("clz.b64 %r0, %d1;", R, &inputs, |a, _, _| a.leading_zeros().into());
    same("popc.b64 %r0, %d1;", R, &inputs, |a, _, _| a.count_ones().into());
    same("brev.b64 %d0, %d1;", D, &inputs, |a, _, _| a.reverse_bits());
}

#[test]
fn sums_products_and_logic_of_64_bits() {
    table64(&[
        ("add.s64 %d0, %d1, %d2;", |a, b, _| a.wrapping_add(b)),
        ("sub.s64 %d0, %d1, %d2;", |a, b, _| a.wrapping_sub(b)),
        ("mul.lo.s64 %d0, %d1, %d2;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u64 %d0, %d1, %d2;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        ("mul.hi.s64 %d0, %d1, %d2;", |a, b, _| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64),
        ("mad.lo.u64 %d0, %d1, %d2, %d3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mul.wide.u32 %d0, %r1, %r2;", |a, b, _| u64::from(a as u32) * u64::from(b as u32)),
        ("mul.wide.s32 %d0, %r1, %r2;", |a, b, _| (i64::from(a as i32) * i64::from(b as i32)) as u64),
        ("mad.wide.u32 %d0, %r1, %r2, %d3;", |a, b, c| {
            (u64::from(a as u32) * u64::from(b as u32)).wrapping_add(c)
        }),
        ("mad.wide.s32 %d0, %r1, %r2, %d3;", |a, b, c| {
            ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
        }),
        ("and.b64 %d0, %d1, %d2;", |a, b, _| a & b),
        ("or.b64 %d0, %d1, %d2;", |a, b, _| a | b),
        ("xor.b64 %d0, %d1, %d2;", |a, b, _| a ^ b),
        ("not.b64 %d0, %d1;", |a, _, _| !a),
        ("neg.s64 %d0, %d1;", |a, _, _| 0u64.wrapping_sub(a)),
        ("abs.s64 %d0, %d1;", |a, _, _| (a as i64).unsigned_abs()),
        ("min.u64 %d0, %d1, %d2;", |a, b, _| if a < b { a } else { b }),
        ("max.u64 %d0, %d1, %d2;", |a, b, _| if a < b { b } else { a }),
        ("min.s64 %d0, %d1, %d2;", |a, b, _| if (a as i64) < (b as i64) { a } else { b }),
        ("max.s64 %d0, %d1, %d2;", |a, b, _| if (a as i64) < (b as i64) { b } else { a }),
    ]);
}

#[test]
fn sixteen_bits_stay_sixteen_bits() {
    table16(&[
        ("add.s16 %h0, %h1, %h2;", |a, b, _| a.wrapping_add(b)),
        ("sub.u16 %h0, %h1, %h2;", |a, b, _| a.wrapping_sub(b)),
        ("mul.lo.s16 %h0, %h1, %h2;", |a, b, _| a.wrapping_mul(b)),
        ("mul.hi.u16 %h0, %h1, %h2;", |a, b, _| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        ("mul.hi.s16 %h0, %h1, %h2;", |a, b, _| ((i32::from(a as i16) * i32::from(b as i16)) >> 16) as u16),
        ("mad.lo.s16 %h0, %h1, %h2, %h3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("not.b16 %h0, %h1;", |a, _, _| !a),
        ("neg.s16 %h0, %h1;", |a, _, _| 0u16.wrapping_sub(a)),
        ("abs.s16 %h0, %h1;", |a, _, _| (a as i16).unsigned_abs()),
        ("and.b16 %h0, %h1, -2;", |a, _, _| a & 0xfffe),
        ("min.s16 %h0, %h1, %h2;", |a, b, _| (a as i16).min(b as i16) as u16),
        ("max.s16 %h0, %h1, %h2;", |a, b, _| (a as i16).max(b as i16) as u16),
        ("min.u16 %h0, %h1, %h2;", |a, b, _| a.min(b)),
        ("selp.b16 %h0, %h1, %h2, %p3;", |a, b, c| if c & 1 == 1 { a } else { b }),
        ("selp.u16 %h0, 1, 0, %p1;", |a, _, _| a & 1),
    ]);
}

#[test]
fn divisions_are_those_of_rust_where_defined() {
    let defined: Vec<_> = operands(&AWKWARD).into_iter().filter(|i| i[1] as u16 != 0).collect();
    type Check = (&'static str, To, fn(u64, u64) -> u64);
    let checks: [Check; 12] = [
        ("div.u32 %r0, %r1, %r2;", R, |a, b| (a as u32 / b as u32).into()),
        ("rem.u32 %r0, %r1, %r2;", R, |a, b| (a as u32 % b as u32).into()),
        ("div.s32 %r0, %r1, %r2;", R, |a, b| u64::from((a as i32).wrapping_div(b as i32) as u32)),
        ("rem.s32 %r0, %r1, %r2;", R, |a, b| u64::from((a as i32).wrapping_rem(b as i32) as u32)),
        ("div.u64 %d0, %d1, %d2;", D, |a, b| a / b),
        ("rem.u64 %d0, %d1, %d2;", D, |a, b| a % b),
        ("div.s64 %d0, %d1, %d2;", D, |a, b| (a as i64).wrapping_div(b as i64) as u64),
        ("rem.s64 %d0, %d1, %d2;", D, |a, b| (a as i64).wrapping_rem(b as i64) as u64),
        ("div.s16 %h0, %h1, %h2;", H, |a, b| u64::from((a as i16).wrapping_div(b as i16) as u16)),
        ("rem.s16 %h0, %h1, %h2;", H, |a, b| u64::from((a as i16).wrapping_rem(b as i16) as u16)),
        ("div.u16 %h0, %h1, %h2;", H, |a, b| (a as u16 / b as u16).into()),
        ("rem.u16 %h0, %h1, %h2;", H, |a, b| (a as u16 % b as u16).into()),
    ];
    for (body, to, f) in checks {
        same(body, to, &defined, |a, b, _| f(a, b));
    }
}

#[test]
fn carries_travel_between_instructions() {
    let inputs = operands(&AWKWARD);
    let wide = "mov.b64 {%r4, %r5}, %d1;\nmov.b64 {%r6, %r7}, %d2;\n";
    let join = "mov.b64 %d0, {%r4, %r5};";
    let add = format!("{wide}add.cc.u32 %r4, %r4, %r6;\naddc.u32 %r5, %r5, %r7;\n{join}");
    same(&add, D, &inputs, |a, b, _| a.wrapping_add(b));
    let sub = format!("{wide}sub.cc.u32 %r4, %r4, %r6;\nsubc.u32 %r5, %r5, %r7;\n{join}");
    same(&sub, D, &inputs, |a, b, _| a.wrapping_sub(b));
    let three = "add.cc.u32 %r0, %r1, %r2;\naddc.cc.u32 %r0, %r3, %r2;\naddc.u32 %r0, 0, 0;";
    same(three, R, &inputs, |a, b, c| {
        let [a, b, c] = [a, b, c].map(|x| x & 0xffff_ffff);
        (c + b + ((a + b) >> 32)) >> 32
    });
    let borrow = "sub.cc.u32 %r0, %r1, %r2;\nsubc.cc.u32 %r0, %r3, %r2;\nsubc.u32 %r0, 0, 0;";
    same(borrow, R, &inputs, |a, b, c| {
        let [a, b, c] = [a, b, c].map(|x| x as u32);
        let first = u64::from(a < b);
        let second = u64::from(c) < u64::from(b) + first;
        if second { 0xffff_ffff } else { 0 }
    });
}

#[test]
fn comparisons_select_and_combine() {
    let inputs = operands(&AWKWARD);
    type Check = (&'static str, fn(u64, u64) -> bool);
    let checks: [Check; 20] = [
        ("eq.s32 %p0, %r1, %r2", |a, b| a as u32 == b as u32),
        ("ne.b32 %p0, %r1, %r2", |a, b| a as u32 != b as u32),
        ("lt.u32 %p0, %r1, %r2", |a, b| (a as u32) < b as u32),
        ("hi.u32 %p0, %r1, %r2", |a, b| a as u32 > b as u32),
        ("ls.u32 %p0, %r1, %r2", |a, b| a as u32 <= b as u32),
        ("ge.u32 %p0, %r1, %r2", |a, b| a as u32 >= b as u32),
        ("lt.s32 %p0, %r1, %r2", |a, b| (a as i32) < b as i32),
        ("le.s32 %p0, %r1, %r2", |a, b| a as i32 <= b as i32),
        ("gt.s32 %p0, %r1, -1", |a, _| a as i32 > -1),
        ("ge.s32 %p0, %r1, %r2", |a, b| a as i32 >= b as i32),
        ("eq.s64 %p0, %d1, %d2", |a, b| a == b),
        ("ne.s64 %p0, %d1, %d2", |a, b| a != b),
        ("lt.u64 %p0, %d1, %d2", |a, b| a < b),
        ("ge.u64 %p0, %d1, %d2", |a, b| a >= b),
        ("lt.s64 %p0, %d1, %d2", |a, b| (a as i64) < b as i64),
        ("gt.s64 %p0, %d1, %d2", |a, b| a as i64 > b as i64),
        ("le.s64 %p0, %d1, %d2", |a, b| a as i64 <= b as i64),
        ("eq.s16 %p0, %h1, 0", |a, _| a as u16 == 0),
        ("lt.s16 %p0, %h1, %h2", |a, b| (a as i16) < b as i16),
        ("ge.u16 %p0, %h1, %h2", |a, b| a as u16 >= b as u16),
    ];
    for (body, f) in checks {
        same(&format!("setp.{body};"), P, &inputs, |a, b, _| f(a, b).into());
    }
    let low = |a: u64| a as u32;
    same("setp.lt.and.u32 %p0, %r1, %r2, %p3;", P, &inputs, |a, b, c| u64::from(low(a) < low(b)) & c & 1);
    same("setp.lt.or.u32 %p0, %r1, %r2, !%p3;", P, &inputs, |a, b, c| {
        u64::from(low(a) < low(b) || c & 1 == 0)
    });
    same("setp.lt.xor.u32 %p0, %r1, %r2, %p3;", P, &inputs, |a, b, c| u64::from(low(a) < low(b)) ^ c & 1);
    same("and.pred %p0, %p1, %p2;", P, &inputs, |a, b, _| a & b & 1);
    same("or.pred %p0, %p1, %p2;", P, &inputs, |a, b, _| (a | b) & 1);
    same("xor.pred %p0, %p1, %p2;", P, &inputs, |a, b, _| (a ^ b) & 1);
    same("not.pred %p0, %p1;", P, &inputs, |a, _, _| !a & 1);
    same("mov.pred %p0, -1;", P, &inputs, |_, _, _| 1);
    same("mov.pred %p0, 0;", P, &inputs, |_, _, _| 0);
    same("selp.b32 %r0, %r1, %r2, %p3;", R, &inputs, |a, b, c| {
        (if c & 1 == 1 { a } else { b }) & 0xffff_ffff
    });
    same("selp.u64 %d0, %d1, 5, %p3;", D, &inputs, |a, _, c| if c & 1 == 1 { a } else { 5 });
    same("slct.u32.s32 %r0, %r1, %r2, %r3;", R, &inputs, |a, b, c| {
        (if c as i32 >= 0 { a } else { b }) & 0xffff_ffff
    });
    same("slct.b64.s32 %d0, %d1, %d2, %r3;", D, &inputs, |a, b, c| if c as i32 >= 0 { a } else { b });
}

#[test]
fn guards_keep_the_old_value() {
    let inputs = operands(&AWKWARD);
    let guarded = "mov.u32 %r0, %r1;\n@%p3 add.s32 %r0, %r1, %r2;";
    same(guarded, R, &inputs, |a, b, c| (if c & 1 == 1 { a.wrapping_add(b) } else { a }) & 0xffff_ffff);
    let inverted = "mov.u64 %d0, %d1;\n@!%p3 mov.u64 %d0, %d2;";
    same(inverted, D, &inputs, |a, b, c| if c & 1 == 1 { a } else { b });
}

#[test]
fn packing_and_unpacking() {
    let inputs = operands(&AWKWARD);
    same("mov.b32 %r0, {%h1, %h2};", R, &inputs, |a, b, _| a & 0xffff | (b & 0xffff) << 16);
    same("mov.b64 %d0, {%r1, %r2};", D, &inputs, |a, b, _| a & 0xffff_ffff | b << 32);
    same("mov.b64 %d0, {%h1, %h2, %h3, %h1};", D, &inputs, |a, b, c| {
        [a, b, c, a].iter().enumerate().map(|(i, x)| (x & 0xffff) << (16 * i)).sum()
    });
    same("mov.b32 {%h4, %h0}, %r1;", H, &inputs, |a, _, _| a >> 16 & 0xffff);
    same("mov.b64 {%r0, %r4}, %d1;", R, &inputs, |a, _, _| a & 0xffff_ffff);
    same("mov.b64 {%r4, %r0}, %d1;", R, &inputs, |a, _, _| a >> 32);
    same("mov.b64 {%h4, %h5, %h0, %h6}, %d1;", H, &inputs, |a, _, _| a >> 32 & 0xffff);
}
