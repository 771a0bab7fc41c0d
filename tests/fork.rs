//! A forked child has its parent's mechanisms, but cannot make its parent's noise.
#![cfg(unix)]

use corrnoise::{CpuOptions, Error, Form, Key, Mechanism, Plan, Resume, Sampler, Sampling, Shard};
use std::time::{Duration, Instant};

fn plan() -> Plan {
    Plan::new(20, Form::blt(&[0.3], &[0.9]).unwrap(), 1.0).unwrap()
}

/// Runs `check` in a forked child and returns its result; a child that hangs is killed.
fn in_child(check: impl FnOnce() -> bool) -> Result<(), &'static str> {
    // SAFETY: the child runs `check` alone and ends without destructors or output of the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or(false);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    let begin = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the child is this process's own, and `status` a number that it may write.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if begin.elapsed() < Duration::from_secs(30) => std::thread::sleep(Duration::from_millis(1)),
            0 => {
                // SAFETY: as above.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as above.
                unsafe { libc::waitpid(child, &mut status, 0) };
                return Err("the child hung");
            }
            _ if status == 0 => return Ok(()),
            _ => return Err("the child found something else"),
        }
    }
}

#[test]
fn a_mechanism_made_before_the_fork_is_an_error_in_the_child() {
    let folder = tempfile::tempdir().unwrap();
    for dim in [1_000, 5_000_000] {
        let mut noise = Mechanism::cpu(&plan(), Key::from_os().unwrap(), Shard::whole(dim).unwrap()).unwrap();
        let mut gradient = vec![0.0_f32; dim as usize];
        noise.add_to(&mut gradient).unwrap();
        let outcome = in_child(|| {
            let mut bare = vec![0.0_f32; dim as usize];
            let step = matches!(noise.add_to(&mut bare), Err(Error::Forked));
            let save = matches!(noise.save(folder.path().join("child")), Err(Error::Forked));
            step && save && bare.iter().all(|value| *value == 0.0)
        });
        assert_eq!(outcome, Ok(()), "{dim} coordinates");
        // The parent's mechanism continues undisturbed.
        noise.add_to(&mut gradient).unwrap();
        assert_eq!(noise.next_step(), 2);
        // Freeing the mechanism in the child does not wait for threads that do not exist there.
        let mut noise = Some(noise);
        assert_eq!(in_child(|| noise.take().is_some()), Ok(()), "{dim} coordinates, dropped");
    }
    assert!(!folder.path().join("child").exists());
}

#[test]
fn a_child_of_a_child_is_another_process_too() {
    let outcome = in_child(|| {
        let mut noise = Mechanism::cpu(&plan(), Key::from_os().unwrap(), Shard::whole(100).unwrap()).unwrap();
        let own = noise.add_to(&mut [0.0_f32; 100]).is_ok();
        let grandchild = in_child(|| matches!(noise.add_to(&mut [0.0_f32; 100]), Err(Error::Forked)));
        own && grandchild == Ok(()) && noise.add_to(&mut [0.0_f32; 100]).is_ok()
    });
    assert_eq!(outcome, Ok(()));
}

#[test]
fn keys_and_samplers_serve_in_a_child_and_its_own_mechanism_claims_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let key = Key::create_file(&path).unwrap();
    let sampling = Sampling::Poisson { dataset_size: 1000, sampling_prob: 0.1 };
    let sampled = plan().with_sampling(sampling).unwrap();
    let sampler = Sampler::new(&sampled, &key).unwrap();
    let expected = sampler.batch(7).unwrap();
    let shard = || Shard::whole(1000).unwrap();
    let mut noise = Mechanism::cpu(&plan(), key.duplicate(), shard()).unwrap();
    let mut made = vec![0.0_f32; 1000];
    noise.add_to(&mut made).unwrap();
    let outcome = in_child(|| {
        let same = sampler.batch(7).unwrap() == expected;
        let commitment = key.run_key(plan().fingerprint()).commitment();
        let usable = commitment == key.duplicate().run_key(plan().fingerprint()).commitment();
        let refused = matches!(Mechanism::cpu(&plan(), key.duplicate(), shard()), Err(Error::Repeated(_)));
        let other = Key::from_file(&path, "the child's").unwrap();
        let mut own = Mechanism::cpu(&plan(), other, shard()).unwrap();
        let mut gradient = vec![0.0_f32; 1000];
        own.add_to(&mut gradient).unwrap();
        same && usable && refused && gradient != made
    });
    assert_eq!(outcome, Ok(()));
}

/// A data loader's worker outlives its parent's mechanism: the claim must end with the mechanism all the same.
#[test]
fn a_child_does_not_keep_its_parents_claim_alive() {
    let folder = tempfile::tempdir().unwrap();
    let key = Key::create_file(folder.path().join("key")).unwrap();
    let shard = || Shard::whole(1000).unwrap();
    let mut noise = Mechanism::cpu(&plan(), key.duplicate(), shard()).unwrap();
    noise.add_to(&mut [0.0_f32; 1000]).unwrap();
    let saved = folder.path().join("saved");
    noise.save(&saved).unwrap();
    let exact = |key: &Key| {
        let options = CpuOptions::default();
        Mechanism::resume_cpu(&plan(), key.duplicate(), shard(), &[&saved], Resume::Exact, options)
    };
    // SAFETY: the child only waits for its end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    assert!(matches!(exact(&key), Err(Error::Repeated(_))), "it is alive");
    drop(noise);
    let resumed = exact(&key).map(|_| ());
    // SAFETY: the child is this process's own.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: as above; no status is asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    resumed.unwrap();
}
