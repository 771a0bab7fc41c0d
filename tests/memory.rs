//! Peak memory of a run: the gradient, the declared state, and little more; saving and resuming included.
#![cfg(target_os = "linux")]

use corrnoise::{CpuOptions, Form, Key, Mechanism, Plan, Resume, Shard};

/// The peak of this process's resident bytes so far.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// This is the only test of this file, because the peak is that of the whole process.
#[test]
fn peak_memory_is_gradient_plus_state() {
    let (dim, slack) = (30_000_000_u64, 64 << 20);
    let form = Form::blt(&[0.29, 0.13, 0.06, 0.015], &[0.22, 0.71, 0.944, 0.9957]).unwrap();
    let plan = Plan::new(10, form, 0.5).unwrap();
    let declared = dim * (4 + plan.form().state_bytes_per_param());
    let base = peak();
    // A form declares what the engine holds; a ring also declares how much its rows ahead take.
    let ring = Plan::new(10, Form::banded_toeplitz(&[1.0; 16]).unwrap(), 0.5).unwrap();
    let small = Mechanism::cpu(&ring, Key::from_os().unwrap(), Shard::whole(1000).unwrap()).unwrap();
    assert_eq!((ring.form().state_bytes_per_param(), small.state_bytes()), (60, 88_000));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("checkpoint");
    let key = || Key::from_bytes([1; 32], "memory");
    let shard = || Shard::whole(dim).unwrap();
    {
        let mut gradient = vec![0.0_f32; dim as usize];
        let mut noise = Mechanism::cpu(&plan, key(), shard()).unwrap();
        assert_eq!(noise.state_bytes() + 4 * dim, declared);
        (0..3).for_each(|_| noise.add_to(&mut gradient).unwrap());
        noise.save(&file).unwrap();
    }
    let used = peak() - base;
    println!("run and save: {} MB above gradient and state", (used as i64 - declared as i64) >> 20);
    assert!(used < declared + slack, "{used} bytes, declared {declared}");
    assert!(used > declared - slack, "the measurement sees the state: {used} bytes, declared {declared}");
    {
        let mut gradient = vec![0.0_f32; dim as usize];
        let options = CpuOptions::default();
        let mut noise =
            Mechanism::resume_cpu(&plan, key(), shard(), &[&file], Resume::Exact, options).unwrap();
        noise.add_to(&mut gradient).unwrap();
    }
    let used = peak() - base;
    assert!(used < declared + slack, "after resuming: {used} bytes, declared {declared}");
}
