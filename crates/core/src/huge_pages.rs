//! Large pages: a step goes through gigabytes, a few kilobytes at a time, so looking up page addresses has a cost.

/// The size in bytes of a large page on systems with the usual pages of 4 KB; it is a multiple of every usual page size.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// Asks for pages of 2 MB where the system offers them on request, best before anything was written. They gain 10% on a BLT
/// with four buffers, and nothing is lost if the request is refused. A mechanism asks for its state; a trainer can ask for its gradients.
pub fn huge_pages<T>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let bytes = size_of_val(memory);
        // Large pages begin at multiples of their size: the memory before the first one gains nothing. That address is the
        // start of a page, whatever the page size is.
        let skip = memory.as_ptr().cast::<u8>().align_offset(LARGE_PAGE);
        if let Some(len) = bytes.checked_sub(skip).filter(|len| *len > 0) {
            // SAFETY: the range lies within memory that is borrowed here, and the advice does not change its content.
            let _ = unsafe {
                madvise(memory.as_mut_ptr().cast::<u8>().add(skip).cast(), len, Advice::LinuxHugepage)
            };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}
