//! The control module, through cudarc: its answers are about the library that cudarc opened.

use std::sync::Arc;

use cuda::control;
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

const DOUBLE: &str = ".version 8.0\n.target sm_70\n.address_size 64\n\
    .visible .entry double(.param .u64 a, .param .u32 n)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\n.reg .f32 %f<3>;\n.reg .b64 %d<4>;\n\
    mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.s32 %r1, %r1, %r2, %r3;\n\
    ld.param.u32 %r2, [n];\nsetp.ge.u32 %p1, %r1, %r2;\n@%p1 bra $end;\n\
    ld.param.u64 %d1, [a];\nmul.wide.u32 %d2, %r1, 4;\nadd.s64 %d1, %d1, %d2;\nld.global.f32 %f1, [%d1];\n\
    add.rn.f32 %f2, %f1, %f1;\nst.global.f32 [%d1], %f2;\n$end:\nret;\n}\n";

/// A stream of a device, and the kernel loaded with the device's current mutations.
fn load(device: usize) -> (Arc<CudaStream>, CudaFunction) {
    let context = CudaContext::new(device).unwrap();
    let module = context.load_module(Ptx::from_src(DOUBLE)).unwrap();
    (context.new_stream().unwrap(), module.load_function("double").unwrap())
}

/// Doubles `values` on a device with the kernel.
fn double(stream: &Arc<CudaStream>, kernel: &CudaFunction, values: &[f32]) -> Vec<f32> {
    let mut data = stream.clone_htod(values).unwrap();
    let n = values.len() as u32;
    // SAFETY: the kernel takes an array of `n` floats and stays inside it.
    unsafe { stream.launch_builder(kernel).arg(&mut data).arg(&n).launch(LaunchConfig::for_num_elems(n)) }
        .unwrap();
    let out = stream.clone_dtoh(&data).unwrap();
    stream.synchronize().unwrap();
    out
}

#[test]
fn cudarc_talks_to_the_stand_in() {
    assert!(control::is_stand_in());
    let (stream, kernel) = load(0);
    assert_eq!(stream.context().name().unwrap(), "corrnoise stand-in (executes PTX)");
    assert_eq!(CudaContext::new(7).unwrap().compute_capability().unwrap(), (6, 1));
    assert_eq!(double(&stream, &kernel, &[1.5, -2.0, 0.1]), [3.0, -4.0, 0.2]);
}

#[test]
fn calls_are_counted_by_name_and_device() {
    let (stream, kernel) = load(1);
    let before = [control::calls("cuLaunchKernel"), control::calls_on(1, "cuLaunchKernel")];
    double(&stream, &kernel, &[1.0]);
    double(&stream, &kernel, &[1.0]);
    assert_eq!(control::calls_on(1, "cuLaunchKernel"), before[1] + 2);
    assert!(control::calls("cuLaunchKernel") >= before[0] + 2);
    // The device that is too old for the kernels: no other test of this process launches there.
    assert_eq!(control::calls_on(7, "cuLaunchKernel"), 0);
    assert_eq!(control::calls("cuNothing"), 0);
}

#[test]
fn traffic_is_counted_by_width() {
    let (stream, kernel) = load(2);
    control::reset_traffic(2);
    double(&stream, &kernel, &[1.0; 1000]);
    let traffic = control::traffic(2);
    assert_eq!([traffic.launches, traffic.loads, traffic.stores, traffic.atomics], [1, 1000, 1000, 0]);
    assert_eq!([traffic.loaded_bytes, traffic.stored_bytes], [4000, 4000]);
    assert_eq!(
        [traffic.loads_of(4), traffic.stores_of(4), traffic.loads_of(16), traffic.loads_of(3)],
        [1000, 1000, 0, 0]
    );
    // 24 threads of the block are out of range: they execute 7 instructions and the return, the others 14 in all.
    assert_eq!(traffic.instructions, 1000 * 14 + 24 * 8);
    control::reset_traffic(2);
    assert_eq!(control::traffic(2), cuda::Traffic::default());
}

#[test]
fn mutations_change_what_is_loaded_from_then_on() {
    let (stream, kernel) = load(3);
    control::mutate(3, "%f1, %f1;", "%f1, 0f3F800000;", 0);
    let (_, mutated) = load(3);
    assert_eq!(double(&stream, &kernel, &[4.0]), [8.0]);
    assert_eq!(double(&stream, &mutated, &[4.0]), [5.0]);
    control::mutate(3, "add.", "sub.", 1);
    assert_eq!(double(&stream, &load(3).1, &[4.0]), [3.0]);
    control::mutate(3, "add.", "sub.", 2);
    let refused = stream.context().load_module(Ptx::from_src(DOUBLE)).unwrap_err();
    assert!(refused.to_string().contains("does not occur 3 times"), "{refused}");
    control::mutate_clear(3);
    assert_eq!(double(&stream, &load(3).1, &[4.0]), [8.0]);
}

/// Serialises the two tests that share device 4: each would see what the other sets.
static FOURTH: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_warp_ends_at_the_limit_that_a_test_sets() {
    let _alone = FOURTH.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (stream, kernel) = load(4);
    // 14 instructions are enough; the limit is checked where a warp branches or returns.
    control::limit(4, 14);
    assert_eq!(double(&stream, &kernel, &[2.0]), [4.0]);
    control::mutate(4, "ret;", "bra $end;", 0);
    control::limit(4, 1_000);
    let (stream, kernel) = load(4);
    let mut data = stream.clone_htod(&[1.0f32]).unwrap();
    // SAFETY: the kernel takes an array of one float; it does not end, which the stand-in notices.
    let launched = unsafe {
        stream.launch_builder(&kernel).arg(&mut data).arg(&1u32).launch(LaunchConfig::for_num_elems(1))
    };
    let text = launched.unwrap_err().to_string();
    assert!(text.contains("the warp has run 1000 instructions"), "{text}");
    control::mutate_clear(4);
    control::limit(4, 1 << 26);
}

#[test]
fn registers_hold_what_a_test_says_until_they_are_written() {
    let _alone = FOURTH.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // The mutation drops the sum, so the result is a register that was never written.
    control::mutate(4, "add.rn.f32 %f2, %f1, %f1;", "", 0);
    let (stream, kernel) = load(4);
    control::unwritten(4, [1.5_f32.to_bits(), 0]);
    assert_eq!(double(&stream, &kernel, &[2.0; 3]), [1.5, 0.0, 1.5]);
    control::unwritten(4, control::UNWRITTEN);
    assert_eq!(double(&stream, &kernel, &[2.0]), [f32::from_bits(control::UNWRITTEN[0])]);
    control::mutate_clear(4);
}

#[test]
fn watched_lines_tell_what_ran_and_what_was_passed() {
    let _alone = FOURTH.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let count = DOUBLE.lines().count() + 1;
    let line = |part: &str| DOUBLE.lines().position(|line| line.contains(part)).unwrap() + 1;
    let watch = |values: &[f32]| {
        let (stream, kernel) = load(4);
        control::watch_lines(4);
        double(&stream, &kernel, values);
        control::watched_lines(4, count)
    };
    let whole = watch(&[1.0; 1024]);
    let ran = control::Line { ran: true, passed: false };
    assert_eq!([whole[line("st.global")], whole[line("ret;")]], [ran; 2]);
    assert_eq!(whole[line("@%p1 bra")], control::Line { ran: false, passed: true });
    assert_eq!(whole[line(".reg")], control::Line::default());
    assert_eq!(watch(&[1.0; 5])[line("@%p1 bra")], control::Line { ran: true, passed: true });
    // Watching has ended, so the lines are clear.
    assert_eq!(control::watched_lines(4, count), vec![control::Line::default(); count]);
}

#[test]
fn a_fault_reaches_cudarc_with_its_text_and_ends_with_the_context() {
    let (stream, kernel) = load(5);
    let mut data = stream.clone_htod(&[1.0f32; 10]).unwrap();
    // SAFETY: the length is wrong on purpose; the stand-in notices.
    let launched = unsafe {
        stream.launch_builder(&kernel).arg(&mut data).arg(&11u32).launch(LaunchConfig::for_num_elems(11))
    };
    let text = launched.unwrap_err().to_string();
    assert!(
        text.contains("kernel double, block 0, thread 10, line 20")
            && text.contains("at +40 of an allocation of 40"),
        "{text}"
    );
    assert!(stream.synchronize().unwrap_err().to_string().contains("thread 10"));
    drop((data, kernel, stream));
    let (stream, kernel) = load(5);
    assert_eq!(double(&stream, &kernel, &[1.0]), [2.0]);
}

#[test]
fn cudarc_captures_and_replays() {
    use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
    let context = CudaContext::new(6).unwrap();
    // SAFETY: one stream only.
    unsafe { context.disable_event_tracking() };
    let kernel = context.load_module(Ptx::from_src(DOUBLE)).unwrap().load_function("double").unwrap();
    let stream = context.new_stream().unwrap();
    let mut data = stream.clone_htod(&[1.0f32, 3.0]).unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    // SAFETY: the kernel takes an array of two floats and stays inside it.
    unsafe {
        stream.launch_builder(&kernel).arg(&mut data).arg(&2u32).launch(LaunchConfig::for_num_elems(2))
    }
    .unwrap();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [1.0, 3.0]);
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    assert_eq!(stream.clone_dtoh(&data).unwrap(), [8.0, 24.0]);
}

/// The control reaches the kernel: the edges lie apart, and the exact result and the random ones between them.
#[test]
fn approximate_results_are_chosen() {
    let (stream, _) = load(6);
    let text = DOUBLE.replace("add.rn.f32 %f2, %f1, %f1;", "rsqrt.approx.ftz.f32 %f2, %f1;");
    let kernel = stream.context().load_module(Ptx::from_src(text)).unwrap().load_function("double").unwrap();
    let values: Vec<f32> = (1..200).map(|i| i as f32 * 0.37).collect();
    let run = |how| {
        control::approximate(6, how);
        double(&stream, &kernel, &values)
    };
    use control::Approximate::{Exact, Highest, Lowest, Random};
    let [low, exact, high, some, other] = [Lowest, Exact, Highest, Random(1), Random(2)].map(run);
    for i in 0..values.len() {
        assert_eq!(exact[i], f64::from(values[i]).sqrt().recip() as f32);
        assert!(low[i] < high[i] && low[i] <= some[i] && some[i] <= high[i], "{}", values[i]);
    }
    assert!(some != exact && some != other && run(Random(1)) == some);
    control::approximate(6, Random(0));
}
