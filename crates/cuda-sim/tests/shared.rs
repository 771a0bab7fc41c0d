//! Shared memory, barriers, and the races between them.

mod common;

use common::{Arg, Error, Gpu, Result, module};
use cuda::Status;

const SAMPLE: &str = include_str!("shared/sample.ptx");

/// Runs one block of `threads` threads with 256 bytes of shared memory. `%r1` is the thread, `%d1` the shared address of its
/// word, `%d2` that of the first word; `%r0` is stored and returned.
fn run(threads: u32, body: &str) -> Result<Vec<u32>> {
    let gpu = Gpu::new();
    let start = ".shared .align 16 .b8 tile[256];\nmov.u32 %r0, 0;\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d3, %r1, 4;\n\
                 mov.u64 %d2, tile;\nadd.s64 %d1, %d2, %d3;\nld.param.u64 %d4, [out];\nadd.s64 %d4, %d4, %d3;\n";
    let text = module(".param .u64 out", &format!("{start}{body}\nst.global.u32 [%d4], %r0;"));
    let kernel = gpu.kernel(&text, "k");
    let out = gpu.upload(&vec![u32::MAX; threads as usize]);
    gpu.launch(kernel, 1, threads, &[Arg::U64(out)])?;
    gpu.read(out, threads as usize)
}

fn fault(threads: u32, body: &str) -> Error {
    run(threads, body).expect_err(body)
}

/// The sample's kernel on two blocks, with some of its text replaced.
fn swap(from: &str, to: &str) -> Result<Vec<f32>> {
    let gpu = Gpu::new();
    let kernel = gpu.kernel(&SAMPLE.replacen(from, to, 1), "swap");
    let values: Vec<f32> = (0..1024).map(|i| (i % 97) as f32).collect();
    let (values, out) = (gpu.upload(&values), gpu.alloc(1024));
    gpu.launch(kernel, 2, 128, &[Arg::U64(out), Arg::U64(values), Arg::U32(5)])?;
    gpu.read(out, 256)
}

#[test]
fn warps_see_what_others_wrote_before_a_barrier() {
    let sum = |t: usize| (0..4).map(|i| 2.0 * ((4 * t + i) % 97) as f32).sum::<f32>();
    for (i, value) in swap("", "").unwrap().into_iter().enumerate() {
        let (block, t) = (i / 128, i % 128);
        let own = sum(128 * block + (t ^ 33));
        let other = sum(128 * block + ((((t / 32) ^ 1) * 32) ^ 33));
        assert_eq!(value, own + other + 5.0, "{i}");
    }
}

/// A barrier that is gone is found: each of the two, and the one of a warp.
#[test]
fn a_deleted_barrier_is_found() {
    let second =
        SAMPLE.find("$L__BB0_4:").and_then(|at| SAMPLE[at..].find("mul.wide").map(|to| &SAMPLE[at..at + to]));
    let second = second.expect("the sample's second barrier");
    for (from, to) in [("bar.sync \t0;", ""), (second, &second.replace("bar.sync", "//"))] {
        let error = swap(from, to).expect_err(from);
        let known = error.text.contains("which no thread of the block has written");
        assert!(known || error.text.contains("with no barrier between"), "{}", error.text);
    }
    let exchange = "st.shared.u32 [%d1], %r1;\nbar.warp.sync -1;\nxor.b64 %d5, %d3, 4;\nadd.s64 %d5, %d2, %d5;\n\
                    ld.shared.u32 %r0, [%d5];";
    assert_eq!(run(4, exchange).unwrap(), [1, 0, 3, 2]);
    let error = fault(4, &exchange.replace("bar.warp.sync -1;", ""));
    assert_eq!(error.status, Status::LaunchFailed);
    assert!(
        error
            .text
            .contains("thread 0, line 23 `ld.shared.u32 %r0, [%d5];`: reads 4 bytes at +4 of shared tile"),
        "{}",
        error.text
    );
}

#[test]
fn a_race_names_kernel_block_word_and_both_lines() {
    let body = "@%p1 bra $x;\n$x:\nshl.b32 %r2, %r1, 27;\nst.shared.u32 [%d2+8], %r2;";
    let error = fault(1, "ld.shared.u32 %r0, [%d2+8];");
    assert!(error.text.ends_with(
        "reads 4 bytes at +8 of shared tile of 256 bytes, which no thread of the block has written"
    ));
    let error = fault(2, body);
    assert_eq!(
        error.text,
        "cuLaunchKernel: kernel k, block 0, thread 1, line 22 `st.shared.u32 [%d2+8], %r2;`: writes 4 bytes at +8 of shared tile \
         of 256 bytes, which thread 0 of the block writes at line 22 `st.shared.u32 [%d2+8], %r2;` with no barrier between"
    );
    assert!(run(1, body).is_ok());
}

/// Writes and reads of one word, in every order, by two warps and by two lanes; a barrier makes each right.
#[test]
fn every_pair_with_a_write_needs_a_barrier() {
    for (threads, other, barrier) in
        [(64, 32, "bar.sync 0;"), (2, 1, "bar.warp.sync 3;"), (2, 1, "barrier.sync 0;")]
    {
        for (first, second) in [("st", "ld"), ("ld", "st"), ("st", "st")] {
            let access = |code: &str, guard: &str| match code {
                "ld" => format!("{guard} ld.shared.u32 %r0, [%d2];\n"),
                _ => format!("{guard} st.shared.u32 [%d2], %r1;\n"),
            };
            let body = |between: &str| {
                format!(
                    "setp.eq.u32 %p1, %r1, 0;\nsetp.eq.u32 %p2, %r1, {other};\n{}{barrier}\n{}{between}\n{}",
                    access("st", "@%p1"),
                    access(first, "@%p1"),
                    access(second, "@%p2")
                )
            };
            assert!(run(threads, &body(barrier)).is_ok(), "{threads} {first} {second}");
            let error = fault(threads, &body(""));
            assert!(error.text.contains("with no barrier between"), "{first} {second}: {}", error.text);
        }
    }
}

/// Reads of many lanes of one warp end at a barrier of that warp, those of several warps at one of the block.
#[test]
fn a_word_that_many_read_is_written_after_a_barrier() {
    let body = |barrier: &str| {
        format!(
            "setp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%d2], 7;\nbar.sync 0;\nld.shared.u32 %r0, [%d2];\n{barrier}\n\
                 @%p1 st.shared.u32 [%d2], 9;"
        )
    };
    assert_eq!(run(32, &body("bar.warp.sync -1;")).unwrap(), [7; 32]);
    assert_eq!(run(64, &body("bar.sync 0;")).unwrap(), [7; 64]);
    let last = body("bar.warp.sync -1;").replacen("%r1, 0;", "%r1, 40;", 1);
    assert!(fault(64, &last).text.contains("which a thread of another warp reads at line"));
    assert!(
        fault(64, &body("bar.warp.sync -1;")).text.contains("which thread 0 of the block writes at line")
    );
    assert!(fault(32, &body("")).text.contains("which thread 1 of the block reads at line"));
}

/// Warp barriers order only the lanes that they name, and those that later ones lead to.
#[test]
fn a_barrier_of_some_lanes_orders_those() {
    let body = |second: u32| {
        format!(
            "setp.eq.u32 %p1, %r1, 0;\nsetp.eq.u32 %p2, %r1, 2;\nsetp.lt.u32 %p3, %r1, 2;\nsetp.ge.u32 %p4, %r1, 1;\n\
             @%p1 st.shared.u32 [%d2], 5;\n@%p3 bar.warp.sync 3;\n@%p4 bar.warp.sync {second};\n@%p2 ld.shared.u32 %r0, [%d2];"
        )
    };
    assert_eq!(run(3, &body(6)).unwrap(), [0, 0, 5]);
    let alone = body(6).replace("@%p3 bar.warp.sync 3;", "");
    assert!(fault(3, &alone).text.contains("which thread 0 of the block writes"));
}

#[test]
fn all_threads_of_a_block_come_to_its_barriers() {
    assert!(run(96, "bar.sync 0;").is_ok());
    let error = fault(96, "setp.ge.u32 %p1, %r1, 64;\n@%p1 ret;\nbar.sync 0;");
    assert!(error.text.contains("warp 0 waits, but warp 2 has returned"), "{}", error.text);
    let error = fault(96, "setp.eq.u32 %p1, %r1, 70;\n@%p1 ret;\nbar.sync 0;");
    assert!(error.text.contains("divergent code: lane 0 waits, but lane 6 has returned"), "{}", error.text);
    let error = fault(40, "setp.eq.u32 %p1, %r1, 3;\n@%p1 bar.sync 0;");
    assert!(error.text.contains("divergent code: lane 3 waits, but lane 0 has returned"), "{}", error.text);
    let other = "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $a;\nbar.sync 0;\nbra $b;\n$a:\nbar.sync 0;\n$b:";
    let error = fault(64, other);
    assert!(error.text.contains("warp 0 waits here, warp 1 at line"), "{}", error.text);
    assert!(run(32, other).is_ok());
    let error = fault(32, &other.replace("%r1, 32", "%r1, 7"));
    assert!(error.text.contains("divergent code: lane 0 waits, but lane 7 waits at line"), "{}", error.text);
    // A block that returns as a whole waits for nobody.
    assert!(run(96, "setp.lt.u32 %p1, %r1, 96;\n@%p1 ret;\nbar.sync 0;").is_ok());
}

/// Lanes meet at a barrier although some take a way that lies behind it.
#[test]
fn lanes_that_come_back_are_waited_for() {
    let body = "setp.eq.u32 %p1, %r1, 5;\n@%p1 bra $far;\n$back:\nbar.sync 0;\nbra $end;\n$far:\nmov.u32 %r0, 9;\nbra $back;\n$end:";
    assert_eq!(run(7, body).unwrap(), [0, 0, 0, 0, 0, 9, 0]);
}

#[test]
fn a_warp_barrier_checks_its_mask() {
    let error = fault(4, "setp.lt.u32 %p1, %r1, 3;\n@%p1 bar.warp.sync 3;");
    assert!(
        error.text.contains("thread 2, line") && error.text.contains("not in its own mask"),
        "{}",
        error.text
    );
    let error = fault(4, "add.u32 %r2, %r1, 15;\nbar.warp.sync %r2;");
    assert!(error.text.contains("other masks") || error.text.contains("own mask"), "{}", error.text);
    let error = fault(4, "setp.lt.u32 %p1, %r1, 2;\n@%p1 bar.warp.sync 7;\nbar.sync 0;");
    assert!(error.text.contains("divergent code: lane 0 waits, but lane 2 "), "{}", error.text);
    // Lanes that have returned, or never were, are not waited for.
    assert!(run(4, "setp.lt.u32 %p1, %r1, 2;\n@%p1 ret;\nbar.warp.sync -1;").is_ok());
    assert!(run(4, "setp.ge.u32 %p1, %r1, 2;\n@%p1 bra $far;\nbar.warp.sync -1;\nret;\n$far:\nret;").is_ok());
}

#[test]
fn accesses_stay_in_their_variable_and_are_aligned() {
    let own = ".shared .align 8 .b8 a[24];\n.shared .f32 b;\nmov.u64 %d5, a;\nmov.u64 %d6, b;\n";
    let check = |body: &str| run(1, &format!("{own}{body}"));
    assert!(check("st.shared.v2.u32 [%d5+16], {%r1, %r1};\nld.shared.u64 %d7, [a+16];").is_ok());
    assert!(check("st.shared.f32 [b], 0f3F800000;\nld.shared.f32 %f1, [%d6];").is_ok());
    for (body, status, text) in [
        (
            "st.shared.u32 [%d5+24], %r1;",
            Status::IllegalAddress,
            "writes 4 bytes at +24 of shared a of 24 bytes",
        ),
        (
            "st.shared.u32 [%d6+-4], %r1;",
            Status::IllegalAddress,
            "writes 4 bytes at -4 of shared b of 4 bytes",
        ),
        (
            "st.shared.u32 [%d6+4], %r1;",
            Status::IllegalAddress,
            "writes 4 bytes at +4 of shared b of 4 bytes",
        ),
        ("st.shared.u32 [%d4], %r1;", Status::IllegalAddress, "where no shared variable is"),
        ("st.shared.u32 [%d5+2], %r1;", Status::MisalignedAddress, "not a multiple of 4"),
        ("st.shared.v4.u32 [%d5], {%r1, %r1, %r1, %r1};", Status::MisalignedAddress, "not a multiple of 16"),
        ("st.global.u32 [%d5], %r1;", Status::IllegalAddress, "where nothing is allocated"),
        ("st.u32 [%d5], %r1;", Status::IllegalAddress, "where nothing is allocated"),
    ] {
        let error = check(body).expect_err(body);
        assert!(error.status == status && error.text.contains(text), "{body}: {}", error.text);
    }
}

#[test]
fn generic_addresses_reach_shared_memory() {
    let gpu = Gpu::new();
    let kernel = gpu.kernel(SAMPLE, "choose");
    let values: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let (values, out) = (gpu.upload(&values), gpu.alloc(256));
    gpu.launch(kernel, 1, 64, &[Arg::U64(out), Arg::U64(values)]).unwrap();
    for (t, value) in gpu.read::<f32>(out, 64).unwrap().into_iter().enumerate() {
        assert_eq!(value, (63 - t) as f32 + if t % 2 == 1 { 0.0 } else { 100.0 }, "{t}");
    }
    let back = "cvta.shared.u64 %d5, %d1;\nst.u32 [%d5], %r1;\ncvta.to.shared.u64 %d6, %d5;\nld.shared.u32 %r0, [%d6];";
    assert_eq!(run(3, back).unwrap(), [0, 1, 2]);
}

#[test]
fn loops_with_barriers_run_their_turns() {
    for turns in [0, 1, 3, 6] {
        let gpu = Gpu::new();
        let (kernel, out) = (gpu.kernel(SAMPLE, "turns"), gpu.alloc(384));
        gpu.launch(kernel, 1, 96, &[Arg::U64(out), Arg::U32(turns)]).unwrap();
        let mut ring: Vec<u32> = (0..96).collect();
        for i in 0..turns {
            ring = (0..96).map(|t| ring[(t + 33) % 96].wrapping_mul(3).wrapping_add(i)).collect();
        }
        assert_eq!(gpu.read::<u32>(out, 96).unwrap(), ring, "{turns}");
    }
}

/// A block begins with nothing in its shared memory, whatever the block before it left there.
#[test]
fn blocks_share_nothing() {
    let gpu = Gpu::new();
    let body = ".shared .b32 word;\nmov.u32 %r1, %ctaid.x;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [word], %r1;\n\
                ld.shared.u32 %r2, [word];";
    let kernel = gpu.kernel(&module("", body), "k");
    gpu.launch(kernel, 1, 1, &[]).unwrap();
    let error = gpu.launch(kernel, 2, 1, &[]).unwrap_err();
    assert!(
        error.text.contains("block 1, thread 0") && error.text.contains("no thread of the block"),
        "{}",
        error.text
    );
}

/// Variables of a module belong to each kernel that names them, and their size counts.
#[test]
fn a_modules_variables_are_every_kernels() {
    let gpu = Gpu::new();
    let text = module("", "st.shared.u32 [both], 1;\nld.shared.u32 %r1, [both];");
    let text = text.replace(".visible", ".shared .align 4 .b8 both[40000];\n.visible");
    let kernel = gpu.kernel(&text, "k");
    gpu.launch(kernel, 1, 1, &[]).unwrap();
    let size = common::get(0, |out| shared_bytes(out, kernel)).unwrap();
    assert_eq!(size, 40_000);
}

fn shared_bytes(out: cuda::driver::Out<i32>, kernel: cuda::driver::Handle) -> Status {
    // SAFETY: the out-pointer comes from `get`.
    unsafe { cuda::driver::cuFuncGetAttribute(out, 1, kernel) }
}

/// Global memory: what all threads of a block read, one of them writes after a barrier, and no other block touches.
#[test]
fn barriers_order_global_memory_within_a_block() {
    let body = |barrier: &str| {
        format!(
            "ld.param.u64 %d1, [a];\nmov.u32 %r1, %ctaid.x;\nmul.wide.u32 %d2, %r1, 4;\nadd.s64 %d1, %d1, %d2;\n\
             mov.u32 %r2, %tid.x;\nld.global.u32 %r3, [%d1];\n{barrier}\nsetp.eq.u32 %p1, %r2, 0;\n\
             add.u32 %r3, %r3, 10;\n@%p1 st.global.u32 [%d1], %r3;"
        )
    };
    let run = |threads, body: &str| {
        let gpu = Gpu::new();
        let (kernel, words) = (gpu.kernel(&module(".param .u64 a", body), "k"), gpu.upload(&[1u32, 2, 3]));
        for _ in 0..2 {
            gpu.launch(kernel, 3, threads, &[Arg::U64(words)])?;
        }
        gpu.read::<u32>(words, 3)
    };
    assert_eq!(run(70, &body("bar.sync 0;")).unwrap(), [21, 22, 23]);
    assert_eq!(run(32, &body("bar.warp.sync -1;")).unwrap(), [21, 22, 23]);
    let error = run(70, &body("bar.warp.sync -1;")).unwrap_err();
    assert!(error.text.contains("which thread 0 of the block writes at line"), "{}", error.text);
    let error = run(32, &body("")).unwrap_err();
    assert!(error.text.contains("that several threads of the launch read"), "{}", error.text);
    let shared = body("bar.sync 0;").replace("mov.u32 %r1, %ctaid.x", "mov.u32 %r1, 0");
    let error = run(70, &shared).unwrap_err();
    assert!(
        error.text.contains("block 1, thread 0") && error.text.contains("a thread of another block writes"),
        "{}",
        error.text
    );
}
