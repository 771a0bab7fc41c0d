//! Evaluates one PTX instruction on many operands, and compares with plain Rust.

use super::{Arg, Gpu, module};

/// Which register holds an instruction's result: `%r0`, `%d0`, `%h0`, `%f0` or `%p0`.
#[derive(Clone, Copy, Debug)]
pub enum To {
    R,
    D,
    H,
    F,
    P,
}

/// Runs one thread per element of `inputs`. Operand `i` is in `%di` as 64 bits, in `%ri`, `%fi` and `%hi` as its low bits, and
/// in `%pi` as its lowest bit.
pub fn eval(body: &str, to: To, inputs: &[[u64; 3]]) -> Vec<u64> {
    let unpack: String = (1..=3)
        .map(|i| {
            format!(
                "ld.global.u64 %d{i}, [%d12+{}];\ncvt.u32.u64 %r{i}, %d{i};\ncvt.u16.u64 %h{i}, %d{i};\n\
                 mov.b32 %f{i}, %r{i};\nand.b32 %r0, %r{i}, 1;\nsetp.ne.u32 %p{i}, %r0, 0;\n",
                8 * (i - 1)
            )
        })
        .collect();
    let finish = match to {
        To::R => "cvt.u64.u32 %d0, %r0;",
        To::D => "",
        To::H => "cvt.u64.u16 %d0, %h0;",
        To::F => "mov.b32 %r0, %f0;\ncvt.u64.u32 %d0, %r0;",
        To::P => "selp.u64 %d0, 1, 0, %p0;",
    };
    let text = format!(
        "ld.param.u64 %d10, [in];\nld.param.u64 %d11, [out];\nld.param.u32 %r9, [n];\n\
         mov.u32 %r5, %ctaid.x;\nmov.u32 %r6, %ntid.x;\nmov.u32 %r7, %tid.x;\nmad.lo.s32 %r8, %r5, %r6, %r7;\n\
         setp.ge.u32 %p9, %r8, %r9;\n@%p9 ret;\n\
         mul.wide.u32 %d12, %r8, 24;\nadd.s64 %d12, %d10, %d12;\n{unpack}{body}\n{finish}\n\
         mul.wide.u32 %d13, %r8, 8;\nadd.s64 %d13, %d11, %d13;\nst.global.u64 [%d13], %d0;"
    );
    let gpu = Gpu::new();
    let kernel = gpu.kernel(&module(".param .u64 in, .param .u64 out, .param .u32 n", &text), "k");
    let (from, out) = (gpu.upload(inputs), gpu.alloc(8 * inputs.len()));
    let args = [Arg::U64(from), Arg::U64(out), Arg::U32(inputs.len() as u32)];
    let launched = gpu.launch(kernel, inputs.len().div_ceil(64) as u32, 64, &args);
    launched.unwrap_or_else(|error| panic!("{}", error.text));
    gpu.read(out, inputs.len()).unwrap()
}

/// Operands: all triples of awkward values, then arbitrary ones. Their number leaves the last warp partial, so that both
/// paths of the executor run.
pub fn operands(awkward: &[u64]) -> Vec<[u64; 3]> {
    let mut out = Vec::new();
    for &a in awkward {
        for &b in awkward {
            out.extend(awkward.iter().map(|&c| [a, b, c]));
        }
    }
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    out.extend((0..2000).map(|_| [next(), next(), next()]));
    out.truncate(out.len() - (out.len() + 11) % 32);
    assert_eq!(out.len() % 32, 21);
    out
}

pub const AWKWARD: [u64; 17] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    63,
    64,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// The first operands where an instruction and a function disagree.
pub fn mismatch(body: &str, to: To, inputs: &[[u64; 3]], f: impl Fn(u64, u64, u64) -> u64) -> Option<String> {
    let results = eval(body, to, inputs);
    let wrong = inputs.iter().zip(&results).find(|(i, result)| f(i[0], i[1], i[2]) != **result);
    wrong.map(|(i, result)| {
        let expected = f(i[0], i[1], i[2]);
        format!("{body} of {i:#x?} gives {result:#x}, expected {expected:#x}")
    })
}

/// Asserts that an instruction computes `f`.
pub fn same(body: &str, to: To, inputs: &[[u64; 3]], f: impl Fn(u64, u64, u64) -> u64) {
    if let Some(text) = mismatch(body, to, inputs, f) {
        panic!("{text}");
    }
}
