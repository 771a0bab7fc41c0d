//! Memory for secrets: pages of their own that core dumps leave out, filled in place, wiped before they are given back.
//!
//! A secret that lies in a struct is copied whenever the struct moves, and the copies stay behind. Here a move copies an address.

use bytemuck::Pod;
use std::ops::{Deref, DerefMut};

/// A list of secret numbers of fixed length.
///
/// # Guarantees
/// On Linux the list lies on pages that core dumps exclude (`MADV_DONTDUMP`). It is wiped when it is dropped.
pub struct Secret<T: Pod> {
    pages: pages::Pages,
    len: usize,
    element: std::marker::PhantomData<T>,
}

impl<T: Pod> Secret<T> {
    /// A list of zeros, to be overwritten in place.
    pub fn zeroed(len: usize) -> Secret<T> {
        let bytes = len.checked_mul(size_of::<T>()).expect("a list of secrets fits into memory");
        Secret { pages: pages::Pages::new(bytes.max(1)), len, element: std::marker::PhantomData }
    }

    /// A copy of values that lie elsewhere.
    pub fn copy_of(values: &[T]) -> Secret<T> {
        let mut copy = Secret::zeroed(values.len());
        copy.copy_from_slice(values);
        clear_registers();
        copy
    }
}

impl<T: Pod> Deref for Secret<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: pages are aligned for every number type and hold `len` values, zero at first, which `Zeroable` allows.
        unsafe { std::slice::from_raw_parts(self.pages.start().cast::<T>(), self.len) }
    }
}

impl<T: Pod> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the pages belong to this list alone, which is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pages.start().cast::<T>(), self.len) }
    }
}

impl<T: Pod> Clone for Secret<T> {
    fn clone(&self) -> Secret<T> {
        Secret::copy_of(self)
    }
}

impl<T: Pod> Drop for Secret<T> {
    fn drop(&mut self) {
        self.fill(T::zeroed());
        // The pages are unmapped next, so the compiler would leave out the zeros.
        std::hint::black_box(&mut self[..]);
    }
}

// SAFETY: the pages belong to the list as a box's memory does.
unsafe impl<T: Pod + Send> Send for Secret<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Pod + Sync> Sync for Secret<T> {}

/// Runs `work` and then overwrites the `BYTES` of stack below this frame, where a cipher or a hash may have spilled secrets.
///
/// `work` must hand secrets over through memory that it was given: what it returns is on the caller's stack.
#[inline(never)]
pub fn on_clean_stack<const BYTES: usize, R>(work: impl FnOnce() -> R) -> R {
    let result = call(work);
    wipe_stack::<BYTES>();
    result
}

#[inline(never)]
fn call<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Overwrites the vector registers and `BYTES` of stack below the caller's frame.
#[inline(never)]
fn wipe_stack<const BYTES: usize>() {
    let mut frame = std::mem::MaybeUninit::<[u8; BYTES]>::uninit();
    // SAFETY: the pointer is to `BYTES` bytes of this frame.
    unsafe { frame.as_mut_ptr().write_bytes(0, 1) };
    std::hint::black_box(&mut frame);
    clear_registers();
}

/// Overwrites the vector registers: a copy of 32 bytes goes through them, and the next lazily bound function or signal saves all of
/// them on the stack. A register that the caller still needs is saved by the compiler, as for any instruction that overwrites it.
#[inline(always)]
pub(crate) fn clear_registers() {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx") {
        // SAFETY: the machine has the instruction, which overwrites the registers named here and nothing else.
        unsafe {
            std::arch::asm!(
                "vzeroall",
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

#[cfg(target_os = "linux")]
mod pages {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Pages that are mapped for one secret alone.
    pub(super) struct Pages {
        start: *mut u8,
        bytes: usize,
    }

    impl Pages {
        pub(super) fn new(bytes: usize) -> Pages {
            let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
            let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, read_write, private) };
            let Ok(start) = mapped else {
                let layout = std::alloc::Layout::from_size_align(bytes, 4096);
                std::alloc::handle_alloc_error(layout.expect("a list of secrets fits into memory"))
            };
            // A kernel that cannot exclude pages still runs: the secret is then as safe as on the heap.
            // SAFETY: the advice is about the mapping that was just made, and does not change its content.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
            Pages { start: start.cast(), bytes }
        }

        pub(super) fn start(&self) -> *mut u8 {
            self.start
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the mapping was made in `new`, and every reference to it borrowed its owner, which ends here.
            let _ = unsafe { munmap(self.start.cast(), self.bytes) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod pages {
    /// Memory of the heap, aligned for every number type.
    pub(super) struct Pages(std::cell::UnsafeCell<Box<[u128]>>);

    impl Pages {
        pub(super) fn new(bytes: usize) -> Pages {
            Pages(vec![0_u128; bytes.div_ceil(16)].into_boxed_slice().into())
        }

        pub(super) fn start(&self) -> *mut u8 {
            // SAFETY: only the address of the boxed memory is read; the box itself is never replaced.
            unsafe { (*self.0.get()).as_mut_ptr().cast() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_zero_at_first_and_copies_are_their_own() {
        let mut list = Secret::<u32>::zeroed(2000);
        assert!(list.iter().all(|value| *value == 0));
        list.iter_mut().enumerate().for_each(|(i, value)| *value = i as u32 * 3);
        let copy = list.clone();
        list[7] = 1;
        assert_eq!((list.len(), copy[7], copy[1999], list[7]), (2000, 21, 5997, 1));
        assert!(Secret::<u8>::zeroed(0).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_are_excluded_from_dumps_and_unmapped_when_freed() {
        let secret = Secret::<u8>::zeroed(5000);
        let address = secret.as_ptr().addr();
        // "dd": do not dump. The mapping may have been merged with a neighbour of the same kind.
        assert!(flags_at(address).is_some_and(|flags| flags.contains(" dd")), "{:?}", flags_at(address));
        assert!(flags_at(address + 4999).is_some_and(|flags| flags.contains(" dd")));
    }

    /// The kernel's flags of the mapping that contains an address.
    #[cfg(target_os = "linux")]
    fn flags_at(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let number = |digits| usize::from_str_radix(digits, 16).ok();
            if let Some((start, end)) = range.and_then(|(start, end)| Some((number(start)?, number(end)?))) {
                inside = (start..end).contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return Some(flags.to_owned());
            }
        }
        None
    }

    #[inline(never)]
    fn leave_behind(marker: u64) -> u64 {
        let mut list = [0_u64; 200];
        list.iter_mut().enumerate().for_each(|(i, value)| *value = marker ^ i as u64);
        std::hint::black_box(&mut list).iter().fold(0, |sum, value| sum ^ value)
    }

    /// Counts `marker` in stack that no longer belongs to any frame, through a frame of the same size that is not initialised.
    #[inline(never)]
    fn look_behind(marker: u64) -> usize {
        let mut list = std::mem::MaybeUninit::<[u64; 300]>::uninit();
        let start = std::hint::black_box(&mut list).as_mut_ptr().cast::<u64>();
        // SAFETY: the volatile reads are within this frame; a number has no invalid value.
        (0..300).filter(|i| unsafe { start.add(*i).read_volatile() } & !0xff == marker).count()
    }

    #[test]
    fn a_clean_stack_holds_nothing_of_what_ran_on_it() {
        let marker = 0xfeed_5eed_dead_be00;
        leave_behind(marker);
        assert!(look_behind(marker) > 100, "without wiping, most of it is still there");
        on_clean_stack::<8192, _>(|| leave_behind(marker));
        assert_eq!(look_behind(marker), 0);
    }
}
