//! The bytes of a key are the caller's to wipe where the caller has them; the library leaves no copy of its own behind.
#![cfg(target_os = "linux")]

use corrnoise_capi::*;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

const DEPTH: u64 = 256 << 10;

/// Runs `work` on a thread, and counts the words of `secret` on the stack that it used.
fn left_by(work: impl FnOnce() + Send, secret: &[u8; 32]) -> usize {
    let (frame, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let here = 0_u8;
            work();
            frame.store(std::hint::black_box(&raw const here).addr() as u64, Ordering::Release);
            // The loop neither calls nor returns, so that the stack stays as it was left.
            while seen.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
        });
        while frame.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let mut stack = vec![0; DEPTH as usize];
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        memory.read_exact_at(&mut stack, frame.load(Ordering::Acquire) - DEPTH).unwrap();
        seen.store(1, Ordering::Release);
        stack.windows(8).filter(|window| secret.chunks(8).any(|word| word == *window)).count()
    })
}

#[inline(never)]
fn leave_behind(secret: &[u8; 32]) {
    std::hint::black_box(&mut secret.to_owned());
}

#[test]
fn a_key_of_the_callers_bytes_is_not_left_on_the_stack() {
    let secret: Box<[u8; 32]> = Box::new(std::array::from_fn(|i| (i * 37 + 11) as u8));
    assert_eq!(left_by(|| (), &secret), 0, "nothing by itself");
    assert!(left_by(|| leave_behind(&secret), &secret) >= 4, "a copy is seen");
    let made = || {
        let mut key = null_mut();
        // SAFETY: 32 bytes, a text, and a pointer that may be written to; the key is freed once.
        unsafe {
            let status = corrnoise_key_from_bytes(secret.as_ptr(), c"run".as_ptr(), &mut key);
            assert_eq!(status, Status::Ok);
            corrnoise_key_free(key);
        }
    };
    assert_eq!(left_by(made, &secret), 0);
}
