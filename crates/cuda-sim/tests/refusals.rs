//! Loading refuses whatever the stand-in does not know exactly, and names the line.

mod common;

use common::{Gpu, module};
use cuda::Status;

/// The refusal of a kernel with this body, which starts on line 11.
fn refusal(body: &str) -> String {
    let error = Gpu::new().load(&module(".param .u64 a", body)).expect_err(body);
    assert_eq!(error.status, Status::InvalidPtx, "{body}");
    error.text
}

#[test]
fn a_refusal_names_line_text_and_reason() {
    let text = refusal("mov.u32 %r1, 0;\nfrobnicate.b32 %r1, %r1;");
    assert_eq!(
        text,
        "cuModuleLoadData: PTX line 12 `frobnicate.b32 %r1, %r1;`: \
         frobnicate.b32: unknown instruction, modifier or type"
    );
}

#[test]
fn modifiers_that_change_results_are_refused() {
    for body in [
        "add.ftz.f32 %f1, %f1, %f1;",
        "add.rn.ftz.f32 %f1, %f1, %f1;",
        "fma.rn.ftz.f32 %f1, %f1, %f1, %f1;",
        "fma.rn.sat.f32 %f1, %f1, %f1, %f1;",
        "fma.rm.f32 %f1, %f1, %f1, %f1;",
        "sqrt.approx.f32 %f1, %f1;",
        "rcp.approx.ftz.f32 %f1, %f1;",
        "div.full.f32 %f1, %f1, %f1;",
        "ex2.approx.f32 %f1, %f1;",
        "rsqrt.approx.f32 %f1, %f1;",
        "setp.lt.ftz.f32 %p1, %f1, %f1;",
        "cvt.rn.sat.f32.s32 %f1, %r1;",
        "cvt.rn.ftz.f16.f32 %h1, %f1;",
        "add.sat.s32 %r1, %r1, %r1;",
        "min.NaN.f32 %f1, %f1, %f1;",
        "ld.volatile.global.u32 %r1, [%d1];",
        "ld.relaxed.gpu.global.u32 %r1, [%d1];",
    ] {
        assert!(refusal(body).contains("line 11"), "{body}");
    }
}

/// Without `.rn`, the compiler behind PTX may fuse a product and a sum.
#[test]
fn float_arithmetic_must_name_its_rounding() {
    for body in [
        "add.f32 %f1, %f1, %f1;",
        "sub.f32 %f1, %f1, %f1;",
        "mul.f32 %f1, %f1, %f1;",
        "fma.f32 %f1, %f1, %f1, %f1;",
    ] {
        refusal(body);
        assert!(Gpu::new().load(&module("", &body.replacen(".f32", ".rn.f32", 1))).is_ok(), "{body}");
    }
}

#[test]
fn what_is_not_simulated_is_refused() {
    for body in [
        "bar.sync 1;",
        "bar.sync 0, 64;",
        "bar.arrive 0, 64;",
        "barrier.cluster.arrive;",
        "membar.gl;",
        "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;",
        "ld.volatile.shared.u32 %r1, [%d1];",
        "st.shared.u16 [%d1], %h1;",
        "st.local.u32 [%d1], %r1;",
        "st.global.u8 [%d1], %h1;",
        "st.const.u32 [%d1], %r1;",
        "call f;",
        ".shared .b32 s = 1;",
        ".shared .b8 s[49153];",
        ".extern .shared .b8 s[];",
        ".pragma \"unroll\";",
        "{ .reg .b32 %x; }",
        "add.rn.f64 %d1, %d1, %d1;",
        "cvt.rn.bf16.f32 %h1, %f1;",
        "cvt.rn.bf16x2.f32 %r1, %f1, %f2;",
        "atom.shared.add.u32 %r1, [%d1], 1;",
        "atom.global.add.f32 %f1, [%d1], %f1;",
        "mov.u32 %r1, %warpid;",
        "mov.u32 %r1, %clock;",
    ] {
        refusal(body);
    }
}

#[test]
fn operands_are_checked() {
    for (body, why) in [
        ("add.s32 %r1, %r1;", "operands"),
        ("add.s32 %r1, %r1, %r1, %r1;", "operands"),
        ("add.s32 %r1, %r1, %d1;", "B64 register for a S32"),
        ("add.s32 %f1, %r1, %r1;", "F32 register for a S32"),
        ("add.rn.f32 %f1, %f1, 1;", "immediate 1"),
        ("add.s32 %r1, %r1, 4294967296;", "immediate 4294967296"),
        ("add.s32 %r1, %r10, %r1;", "unknown register %r10"),
        ("add.s32 5, %r1, %r1;", "unknown register 5"),
        ("setp.lt.u32 %r1, %r1, %r1;", "register for a Pred"),
        ("setp.lt.b32 %p1, %r1, %r1;", "unknown comparison"),
        ("@%r1 ret;", "register for a Pred"),
        ("bra nowhere;", "unknown label nowhere"),
        ("$a:\n$a:", "label $a twice"),
        ("ld.global.u32 %r1, [%r2];", "address in a B32"),
        ("ld.global.u32 %r1, [nothing];", "unknown symbol nothing"),
        ("ld.global.v4.u32 {%r1, %r2}, [%d1];", "expected 4 registers"),
        ("ld.global.v4.u64 {%d1, %d2, %d3, %d4}, [%d1];", "cannot be accessed"),
        ("ld.param.u64 %d1, [a+4];", "parameter of 8 bytes"),
        ("ld.param.u32 %r1, [a+6];", "parameter of 8 bytes"),
        ("ld.param.u32 %r1, [b];", "unknown parameter b"),
        ("mov.u32 %r1, a;", "64 bits"),
        ("cvt.f32.s32 %f1, %r1;", "rounding"),
        ("cvt.rn.s32.f32 %r1, %f1;", "rounding"),
        ("cvt.rni.f32.s32 %f1, %r1;", "rounding"),
        ("lop3.b32 %r1, %r1, %r1, %r1, %r2;", "immediate"),
        ("mov.b32 %r1, {%h1, %h2, %h3};", "3 parts"),
        ("mov.u32 %r1", "expected"),
        (".reg .b32 %r<4>;", "declared twice"),
        ("#", "unexpected character"),
    ] {
        let text = refusal(body);
        assert!(text.contains(why), "{body}: {text}");
    }
}

#[test]
fn modules_are_checked() {
    let gpu = Gpu::new();
    let good = module("", "");
    assert!(gpu.load(&good).is_ok());
    for (from, to, status) in [
        (".version 8.0", ".version 8.1", Status::UnsupportedPtxVersion),
        (".version 8.0", "", Status::InvalidPtx),
        ("sm_70", "sm_86", Status::NoBinaryForGpu),
        ("sm_70", "sm_90a", Status::InvalidPtx),
        ("sm_70", "sm_70, debug", Status::InvalidPtx),
        ("_size 64", "_size 32", Status::InvalidPtx),
        (".visible .entry", ".func", Status::InvalidPtx),
        (".visible .entry", ".extern .global .b32 x;\n.visible .entry", Status::InvalidPtx),
        (".visible .entry", ".global .b32 x = y;\n.visible .entry", Status::InvalidPtx),
        (".visible .entry", ".global .b8 x[2] = {1, 2, 3};\n.visible .entry", Status::InvalidPtx),
        ("\n{", "\n.maxnreg 32\n{", Status::InvalidPtx),
        ("ret;\n}", "ret;\n", Status::InvalidPtx),
    ] {
        let error = gpu.load(&good.replacen(from, to, 1)).expect_err(to);
        assert_eq!(error.status, status, "{to}: {}", error.text);
    }
    assert_eq!(gpu.load("\u{7f}ELF").unwrap_err().status, Status::InvalidPtx);
}
