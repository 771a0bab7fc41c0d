//! Every check of a kernel's memory accesses, each beside a twin that passes.

mod common;

use common::{Arg, Error, Gpu, Result, module};
use cuda::Status;

/// Runs one block of `threads` threads. `%r1` is the thread, `%d1` the address of 8 words that hold 10, 11, …, 17, and `%d2`
/// that of 8 words that were never written. `%d3` and `%d4` are the addresses of the thread's own word in each.
fn run(threads: u32, body: &str) -> Result<Vec<u32>> {
    let gpu = Gpu::new();
    let start = "ld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d5, %r1, 4;\n\
                 add.s64 %d3, %d1, %d5;\nadd.s64 %d4, %d2, %d5;\n";
    let text = module(".param .u64 a, .param .u64 b", &format!("{start}{body}"));
    let kernel = gpu.kernel(&text, "k");
    let words = gpu.upload(&[10u32, 11, 12, 13, 14, 15, 16, 17]);
    let fresh = gpu.alloc(32);
    gpu.launch(kernel, 1, threads, &[Arg::U64(words), Arg::U64(fresh)])?;
    gpu.read(words, 8)
}

fn fault(threads: u32, body: &str) -> Error {
    run(threads, body).expect_err(body)
}

#[test]
fn a_kernel_that_stays_in_its_words_passes() {
    let doubled = run(8, "ld.global.u32 %r2, [%d3];\nadd.u32 %r2, %r2, %r2;\nst.global.u32 [%d3], %r2;");
    assert_eq!(doubled.unwrap(), [20, 22, 24, 26, 28, 30, 32, 34]);
    let through_fresh = "st.global.u32 [%d4], %r1;\nld.global.u32 %r2, [%d4];\nst.global.u32 [%d3], %r2;";
    assert_eq!(run(8, through_fresh).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn out_of_bounds() {
    let error = fault(9, "st.global.u32 [%d3], %r1;");
    assert_eq!(error.status, Status::IllegalAddress);
    assert_eq!(
        error.text,
        "cuLaunchKernel: kernel k, block 0, thread 8, line 17 `st.global.u32 [%d3], %r1;`: \
         writes 4 bytes at +32 of an allocation of 32 bytes"
    );
    assert!(fault(1, "ld.global.u32 %r2, [%d1+-4];").text.contains("reads 4 bytes at 0x"));
    assert!(
        fault(1, "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+32];").text.contains("reads 16 bytes at +32")
    );
    assert!(run(1, "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+16];").is_ok());
    // The address has lost its upper half.
    let cut = "cvt.u32.u64 %r2, %d1;\ncvt.u64.u32 %d6, %r2;\nld.global.u32 %r3, [%d6];";
    assert!(fault(1, cut).text.contains("where nothing is allocated"));
}

#[test]
fn misaligned() {
    let error = fault(1, "ld.global.u32 %r2, [%d1+2];");
    assert_eq!(error.status, Status::MisalignedAddress);
    assert!(
        error.text.contains("at +2 of an allocation of 32 bytes, an address that is not a multiple of 4")
    );
    assert!(run(1, "ld.global.u16 %h1, [%d1+2];").is_ok());
    assert_eq!(fault(1, "ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d1+8];").status, Status::MisalignedAddress);
    assert!(run(1, "ld.global.v2.u32 {%r2, %r3}, [%d1+8];").is_ok());
}

#[test]
fn read_before_written() {
    let error = fault(1, "ld.global.u32 %r2, [%d4];");
    assert_eq!(error.status, Status::LaunchFailed);
    assert!(
        error.text.contains(
            "reads 4 bytes at +0 of an allocation of 32 bytes, not all of which were written before"
        )
    );
    // Writing half a word does not initialise the word.
    assert!(run(1, "mov.u16 %h1, 1;\nst.global.u16 [%d4], %h1;\nld.global.u32 %r2, [%d4];").is_err());
    let whole =
        "mov.u16 %h1, 1;\nst.global.u16 [%d4], %h1;\nst.global.u16 [%d4+2], %h1;\nld.global.u32 %r2, [%d4];";
    assert!(run(1, whole).is_ok());
    assert!(run(1, "red.global.add.u32 [%d4], 1;").is_err());
}

#[test]
fn copies_of_bytes_that_were_never_written() {
    let gpu = Gpu::new();
    let address = gpu.alloc(16);
    gpu.write(address, &[1u32, 2]).unwrap();
    assert_eq!(gpu.read::<u32>(address, 2).unwrap(), [1, 2]);
    let error = gpu.read::<u32>(address, 3).unwrap_err();
    assert_eq!(error.status, Status::InvalidValue);
    assert!(error.text.contains("byte +8 of the allocation of 16 bytes was never written"), "{}", error.text);
    // A failed copy is not a fault: the context still works.
    assert_eq!(gpu.read::<u32>(address, 1).unwrap(), [1]);
    assert!(gpu.write(address + 12, &[1u64]).unwrap_err().text.contains("write of 8 bytes at +12"));
}

#[test]
fn two_threads_write_one_word() {
    let error = fault(2, "st.global.u32 [%d1], %r1;");
    assert_eq!(error.status, Status::LaunchFailed);
    assert!(error.text.contains("thread 1, "), "{}", error.text);
    assert!(
        error.text.ends_with(
            "writes 4 bytes at +0 of an allocation of 32 bytes, that thread 0 of the launch writes"
        )
    );
    assert!(run(1, "st.global.u32 [%d1], %r1;\nst.global.u32 [%d1], %r1;").is_ok());
    // Threads of different warps race too.
    let far = "setp.eq.u32 %p1, %r1, 0;\nsetp.eq.u32 %p2, %r1, 63;\nor.pred %p1, %p1, %p2;\n@%p1 st.global.u32 [%d1], %r1;";
    assert!(fault(64, far).text.contains("thread 63, "));
    assert!(run(63, far).is_ok());
    // Neighbouring halves of a word are different bytes.
    let halves =
        "cvt.u16.u32 %h1, %r1;\nmul.wide.u32 %d6, %r1, 2;\nadd.s64 %d6, %d1, %d6;\nst.global.u16 [%d6], %h1;";
    assert_eq!(run(16, halves).unwrap()[1], 3 << 16 | 2);
}

#[test]
fn a_thread_reads_what_another_writes() {
    let later = "st.global.u32 [%d3], %r1;\nxor.b32 %r2, %r1, 1;\nmul.wide.u32 %d6, %r2, 4;\nadd.s64 %d6, %d1, %d6;\n\
                 ld.global.u32 %r3, [%d6];";
    assert!(fault(2, later).text.contains("reads 4 bytes at +4 of an allocation of 32 bytes, that thread 1"));
    // A read before another thread's write is a race too: thread 0 has read word 1 when thread 1 writes it.
    let earlier = "xor.b32 %r2, %r1, 1;\nmul.wide.u32 %d6, %r2, 4;\nadd.s64 %d6, %d1, %d6;\nld.global.u32 %r3, [%d6];\n\
                   st.global.u32 [%d3], %r1;";
    assert!(fault(2, earlier).text.contains("that thread 1 of the launch reads"));
    assert!(run(8, "ld.global.u32 %r2, [%d1];").is_ok());
    assert!(
        fault(8, "ld.global.u32 %r2, [%d1];\nst.global.u32 [%d3], %r2;").text.contains("several threads")
    );
}

#[test]
fn a_promise_to_only_read_is_kept() {
    let own = |load: &str| format!("{load} %r2, [%d3];\nst.global.u32 [%d3], %r2;");
    assert!(run(8, &own("ld.global.u32")).is_ok());
    assert!(fault(8, &own("ld.global.nc.u32")).text.contains("ld.global.nc"));
    assert!(run(8, "ld.global.nc.u32 %r2, [%d1];").is_ok());
}

#[test]
fn atomics_do_not_race_among_themselves() {
    assert_eq!(run(100, "red.global.add.u32 [%d1], 1;").unwrap()[0], 110);
    assert_eq!(run(100, "atom.global.min.u32 %r2, [%d1], %r1;").unwrap()[0], 0);
    assert_eq!(run(100, "atom.global.max.s32 %r2, [%d1], -1;").unwrap()[0], 10);
    assert_eq!(run(7, "shl.b32 %r2, 1, %r1;\nred.global.or.b32 [%d1+4], %r2;").unwrap()[1], 11 | 0x7f);
    assert_eq!(
        run(1, "atom.global.exch.b32 %r2, [%d1], 5;\nst.global.u32 [%d1+4], %r2;").unwrap()[..2],
        [5, 10]
    );
    let cas = "add.u32 %r3, %r1, 10;\nadd.u32 %r4, %r1, 11;\natom.global.cas.b32 %r2, [%d1], %r3, %r4;";
    assert_eq!(run(6, cas).unwrap()[0], 16);
    assert_eq!(run(3, "atom.global.add.u64 %d6, [%d1], 4294967297;").unwrap()[..2], [13, 14]);
    assert!(fault(2, "red.global.add.u32 [%d1], 1;\nld.global.u32 %r2, [%d1];").text.contains("atomically"));
    assert!(fault(2, "st.global.u32 [%d3], 0;\nred.global.add.u32 [%d1], 1;").text.contains("thread 1, "));
}

#[test]
fn freed_memory_and_other_devices() {
    let gpu = Gpu::new();
    let kernel =
        gpu.kernel(&module(".param .u64 a", "ld.param.u64 %d1, [a];\nld.global.u32 %r1, [%d1];"), "k");
    let address = gpu.upload(&[1u32]);
    gpu.launch(kernel, 1, 1, &[Arg::U64(address)]).unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { cuda::driver::cuMemFree_v2(address) }, Status::Success);
    let error = gpu.launch(kernel, 1, 1, &[Arg::U64(address)]).unwrap_err();
    assert!(error.text.contains("reads 4 bytes at +0 of a freed allocation of 4 bytes"), "{}", error.text);
    // SAFETY: no pointers.
    assert_ne!(unsafe { cuda::driver::cuMemFree_v2(address) }, Status::Success);
}

#[test]
fn a_fault_stays_until_the_context_is_gone() {
    let gpu = Gpu::new();
    let kernel = gpu.kernel(&module("", "trap;"), "k");
    let address = gpu.upload(&[1u32]);
    let error = gpu.launch(kernel, 1, 1, &[]).unwrap_err();
    assert_eq!((error.status, error.text.ends_with("`trap;`: trap")), (Status::LaunchFailed, true));
    let later = gpu.read::<u32>(address, 1).unwrap_err();
    assert_eq!(later.status, Status::LaunchFailed);
    assert!(
        later.text.starts_with("cuMemcpyDtoH_v2: kernel k, block 0, thread 0, line 11 `trap;`"),
        "{}",
        later.text
    );
    // SAFETY: no pointers.
    assert_eq!(unsafe { cuda::driver::cuCtxSynchronize() }, Status::LaunchFailed);
    let ordinal = gpu.ordinal;
    drop(gpu);
    let again = Gpu::among(ordinal..ordinal + 1);
    let address = again.upload(&[1u32]);
    assert_eq!(again.read::<u32>(address, 1).unwrap(), [1]);
}

#[test]
fn a_kernel_without_an_end_is_stopped() {
    let error = fault(1, "$again:\nbra $again;");
    assert_eq!(error.status, Status::LaunchTimeout);
}
