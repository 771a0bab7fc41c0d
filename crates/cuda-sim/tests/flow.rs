//! Control flow, indices, parameters and variables.

mod common;

use common::{Arg, Gpu, module};
use cuda::Status;

/// Runs a kernel that stores `%r0` of each thread at its number in the launch; returns what was stored.
fn run(grid: [u32; 3], block: [u32; 3], body: &str) -> Result<Vec<u32>, common::Error> {
    let gpu = Gpu::new();
    let number = "mov.u32 %r5, %ctaid.z;\nmov.u32 %r6, %nctaid.y;\nmov.u32 %r7, %ctaid.y;\nmad.lo.s32 %r5, %r5, %r6, %r7;\n\
                  mov.u32 %r6, %nctaid.x;\nmov.u32 %r7, %ctaid.x;\nmad.lo.s32 %r5, %r5, %r6, %r7;\n\
                  mov.u32 %r6, %ntid.z;\nmov.u32 %r7, %tid.z;\nmad.lo.s32 %r5, %r5, %r6, %r7;\n\
                  mov.u32 %r6, %ntid.y;\nmov.u32 %r7, %tid.y;\nmad.lo.s32 %r5, %r5, %r6, %r7;\n\
                  mov.u32 %r6, %ntid.x;\nmov.u32 %r7, %tid.x;\nmad.lo.s32 %r9, %r5, %r6, %r7;\n\
                  mul.wide.u32 %d9, %r9, 4;\nld.param.u64 %d8, [out];\nadd.s64 %d9, %d8, %d9;\n";
    let kernel =
        gpu.kernel(&module(".param .u64 out", &format!("{number}{body}\nst.global.u32 [%d9], %r0;")), "k");
    let threads = grid.iter().chain(&block).product::<u32>() as usize;
    let out = gpu.upload(&vec![u32::MAX; threads]);
    gpu.launch_on(std::ptr::null_mut(), kernel, grid, block, &[Arg::U64(out)])?;
    gpu.read(out, threads)
}

#[test]
fn every_thread_of_every_shape_runs_once() {
    for (grid, block) in [
        ([1, 1, 1], [1, 1, 1]),
        ([3, 1, 1], [33, 1, 1]),
        ([2, 3, 4], [5, 3, 2]),
        ([1, 1, 1], [16, 8, 8]),
        ([1000, 1, 1], [32, 1, 1]),
    ] {
        let stored = run(grid, block, "mov.u32 %r0, %r9;").unwrap();
        assert!(stored.iter().enumerate().all(|(i, &value)| i as u32 == value), "{grid:?} {block:?}");
    }
}

#[test]
fn lanes_are_counted_within_the_warp() {
    let stored = run([2, 1, 1], [70, 1, 1], "mov.u32 %r0, %laneid;").unwrap();
    assert!(stored.iter().enumerate().all(|(i, &lane)| lane == i as u32 % 70 % 32));
}

/// Counts the steps of the Collatz sequence: loops of as many lengths as there are lanes, with a branch inside.
#[test]
fn lanes_go_their_own_ways_and_meet_again() {
    let body = "add.u32 %r1, %r9, 1;\nmov.u32 %r0, 0;\n\
                $loop:\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra $done;\nadd.u32 %r0, %r0, 1;\nand.b32 %r2, %r1, 1;\n\
                setp.eq.u32 %p2, %r2, 0;\n@%p2 bra $even;\nmad.lo.u32 %r1, %r1, 3, 1;\nbra.uni $loop;\n\
                $even:\nshr.u32 %r1, %r1, 1;\nbra $loop;\n$done:";
    let stored = run([3, 1, 1], [50, 1, 1], body).unwrap();
    for (i, &steps) in stored.iter().enumerate() {
        let (mut n, mut count) = (i as u64 + 1, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            count += 1;
        }
        assert_eq!(steps, count, "of {}", i + 1);
    }
}

#[test]
fn some_lanes_return_early() {
    let body = "mov.u32 %r0, 7;\nand.b32 %r1, %r9, 3;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 ret;\nsetp.gt.u32 %p1, %r9, 40;\n@%p1 exit;";
    let stored = run([1, 1, 1], [64, 1, 1], body).unwrap();
    for (i, &value) in stored.iter().enumerate() {
        assert_eq!(value, if i % 4 == 0 && i <= 40 { 7 } else { u32::MAX }, "{i}");
    }
}

#[test]
fn a_uniform_branch_must_be_uniform() {
    let body = |bound: u32| {
        format!("mov.u32 %r0, 1;\nsetp.lt.u32 %p1, %r9, {bound};\n@%p1 bra.uni $end;\nmov.u32 %r0, 2;\n$end:")
    };
    assert_eq!(run([2, 1, 1], [32, 1, 1], &body(32)).unwrap()[31..33], [1, 2]);
    let error = run([2, 1, 1], [32, 1, 1], &body(33)).unwrap_err();
    assert!(
        error.text.contains("block 1, thread 1,") && error.text.contains("lanes disagree"),
        "{}",
        error.text
    );
}

#[test]
fn blocks_of_the_wrong_shape_are_refused() {
    let gpu = Gpu::new();
    let text = module("", "").replace("\n{", "\n.maxntid 64, 2, 1\n.minnctapersm 4\n{");
    let kernel = gpu.kernel(&text, "k");
    let launch = |grid, block| gpu.launch_on(std::ptr::null_mut(), kernel, grid, block, &[]);
    assert!(launch([1, 1, 1], [128, 1, 1]).is_ok());
    assert!(launch([1, 1, 1], [129, 1, 1]).unwrap_err().text.contains(".maxntid [64, 2, 1]"));
    for (grid, block) in
        [([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [1, 0, 1]), ([1, 65_536, 1], [1, 1, 1]), ([1, 1, 1], [1, 1, 65])]
    {
        assert_eq!(launch(grid, block).unwrap_err().status, Status::InvalidValue);
    }
    let required = gpu.kernel(&module("", "").replace("\n{", "\n.reqntid 32\n{"), "k");
    assert!(gpu.launch(required, 1, 32, &[]).is_ok());
    assert!(gpu.launch(required, 1, 31, &[]).is_err());
}

#[test]
fn parameters_are_read_where_they_lie() {
    let gpu = Gpu::new();
    let params = ".param .u32 a, .param .align 8 .b8 s[24], .param .u64 out";
    let body = "ld.param.u32 %r1, [a];\nld.param.u64 %d1, [out];\nld.param.v2.u32 {%r2, %r3}, [s+8];\n\
                ld.param.s16 %r4, [s+2];\nmov.b64 %d2, s;\nmov.u32 %r8, %tid.x;\nmul.wide.u32 %d3, %r8, 4;\n\
                add.s64 %d2, %d2, %d3;\nld.param.u32 %r5, [%d2+16];\nmul.wide.u32 %d3, %r8, 20;\nadd.s64 %d1, %d1, %d3;\n\
                st.global.u32 [%d1], %r1;\nst.global.u32 [%d1+4], %r2;\nst.global.u32 [%d1+8], %r3;\n\
                st.global.u32 [%d1+12], %r4;\nst.global.u32 [%d1+16], %r5;";
    let kernel = gpu.kernel(&module(params, body), "k");
    let out = gpu.alloc(100);
    let mut bytes = vec![0; 24];
    bytes[2..4].copy_from_slice(&(-2i16).to_le_bytes());
    for (i, value) in [100u32, 200, 300, 400].into_iter().enumerate() {
        bytes[8 + 4 * i..12 + 4 * i].copy_from_slice(&value.to_le_bytes());
    }
    let args = |out| [Arg::U32(9), Arg::Bytes(bytes.clone()), Arg::U64(out)];
    gpu.launch(kernel, 1, 2, &args(out)).unwrap();
    let expected = [9, 100, 200, -2i32 as u32, 300, 9, 100, 200, -2i32 as u32, 400];
    assert_eq!(gpu.read::<u32>(out, 10).unwrap(), expected);
    // The fifth thread would read past the last parameter.
    assert!(gpu.launch(kernel, 1, 5, &args(out)).unwrap_err().text.contains("of the parameters"));
}

#[test]
fn variables_of_the_module_hold_their_values() {
    let gpu = Gpu::new();
    let variables = ".address_size 64\n.global .align 4 .b8 bytes[8] = {1, 2, 3, 4, 255};\n\
                     .const .align 4 .f32 table[3] = {0f3F800000, 0fBF800000, 0f40000000};\n.global .align 8 .u64 one = 1;\n";
    let body = "ld.param.u64 %d1, [out];\nld.global.u32 %r1, [bytes];\nmov.u64 %d2, bytes;\nld.global.s8 %r2, [%d2+4];\n\
                ld.const.f32 %f1, [table+4];\nmov.u64 %d3, table;\nld.const.f32 %f2, [%d3+8];\nld.global.u64 %d4, [one];\n\
                cvta.const.u64 %d5, %d3;\nld.f32 %f3, [%d5];\n\
                st.global.u32 [%d1], %r1;\nst.global.u32 [%d1+4], %r2;\nst.global.f32 [%d1+8], %f1;\n\
                st.global.f32 [%d1+12], %f2;\nst.global.u64 [%d1+16], %d4;\nst.global.f32 [%d1+24], %f3;";
    let text = |body: &str| module(".param .u64 out", body).replace(".address_size 64\n", variables);
    let out = gpu.alloc(28);
    gpu.launch(gpu.kernel(&text(body), "k"), 1, 1, &[Arg::U64(out)]).unwrap();
    let one = 1f32.to_bits();
    let expected = [0x0403_0201, u32::MAX, (-1f32).to_bits(), 2f32.to_bits(), 1, 0, one];
    assert_eq!(gpu.read::<u32>(out, 7).unwrap(), expected);
    let write = gpu.kernel(&text("mov.u64 %d3, table;\nst.global.f32 [%d3], %f1;"), "k");
    assert!(
        gpu.launch(write, 1, 1, &[Arg::U64(out)]).unwrap_err().text.contains("not in the Global state space")
    );
}
