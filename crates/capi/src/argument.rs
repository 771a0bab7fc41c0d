//! Arguments as C gives them, checked as far as a callee can check them.

use crate::status::{Failure, Outcome};
use corrnoise::Error;
use std::ffi::{CStr, c_char};
use std::path::Path;

/// Refuses null, and addresses that are misaligned for a `T`.
fn check<T>(pointer: *const T, name: &'static str) -> Outcome {
    if pointer.is_null() {
        return Err(Failure::Null(name));
    }
    if !pointer.is_aligned() {
        let expected = format!("a multiple of {}", align_of::<T>());
        return Err(Error::parameter(format!("address of {name}"), format!("{pointer:p}"), expected).into());
    }
    Ok(())
}

/// A handle or a struct behind a pointer.
///
/// # Safety
/// The crate's contract holds for `pointer`, for as long as `'a`.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, name: &'static str) -> Outcome<&'a T> {
    check(pointer, name)?;
    // SAFETY: neither null nor misaligned, and valid by the caller's promise.
    Ok(unsafe { &*pointer })
}

/// A copy of the struct behind a pointer, or its default if the pointer is null.
///
/// # Safety
/// The contract is that of [`borrow`].
pub(crate) unsafe fn borrow_or_default<T: Default + Copy>(
    pointer: *const T,
    name: &'static str,
) -> Outcome<T> {
    match pointer.is_null() {
        true => Ok(T::default()),
        // SAFETY: the caller's promise, passed on.
        false => unsafe { borrow(pointer, name) }.copied(),
    }
}

/// The truth value that C gives as 0 or 1.
pub(crate) fn flag(value: u32, name: &'static str) -> Outcome<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::parameter(name, other, "0 or 1").into()),
    }
}

/// A list; an empty one may be null.
///
/// # Safety
/// The crate's contract holds for `len` items from `pointer` on, for as long as `'a`.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, len: usize, name: &'static str) -> Outcome<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    check_size::<T>(len, name)?;
    // SAFETY: neither null, misaligned nor too long, and valid by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// Refuses a length that no memory can hold.
fn check_size<T>(len: usize, name: &'static str) -> Outcome {
    match len.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize) {
        true => Ok(()),
        false => Err(Error::length(name, len, "what fits into memory").into()),
    }
}

/// The UTF-8 text behind a pointer.
///
/// # Safety
/// `pointer` is null or a string that ends in NUL, for as long as `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &'static str) -> Outcome<&'a str> {
    check(pointer, name)?;
    // SAFETY: not null, and a string by the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Error::parameter(name, format!("not UTF-8 ({error})"), "UTF-8 text").into())
}

/// A path as the system has it: any bytes on Unix, UTF-8 elsewhere.
///
/// # Safety
/// The contract is that of [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, name: &'static str) -> Outcome<&'a Path> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        check(pointer, name)?;
        // SAFETY: not null, and a string by the caller's promise.
        let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
        Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    // SAFETY: the caller's promise, passed on.
    unsafe { text(pointer, name) }.map(Path::new)
}

/// The caller's memory that receives an answer.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks the pointer. This comes before anything is done, so that no answer is made in vain.
    ///
    /// # Safety
    /// `pointer` is null or may be written to until [`Out::put`].
    pub(crate) unsafe fn new(pointer: *mut T, name: &'static str) -> Outcome<Out<T>> {
        check(pointer, name)?;
        Ok(Out(pointer))
    }

    /// Writes the answer to the caller's memory.
    pub(crate) fn put(self, value: T) {
        // SAFETY: neither null nor misaligned, and writable by the promise made to `new`; what was there needs no drop, since
        // answers are numbers and pointers.
        unsafe { self.0.write(value) }
    }
}

/// The caller's memory that receives a list.
pub(crate) struct OutList<T> {
    pointer: *mut T,
    len: usize,
}

impl<T> OutList<T> {
    /// Checks the pointer; an empty list may be null.
    ///
    /// # Safety
    /// `len` items from `pointer` on may be written to until [`OutList::put`].
    pub(crate) unsafe fn new(pointer: *mut T, len: usize, name: &'static str) -> Outcome<OutList<T>> {
        if len > 0 {
            check(pointer, name)?;
            check_size::<T>(len, name)?;
        }
        Ok(OutList { pointer, len })
    }

    /// Writes as many values as the list is long, or as there are.
    pub(crate) fn put(self, values: impl IntoIterator<Item = T>) {
        for (place, value) in (0..self.len).zip(values) {
            // SAFETY: one of the items that the promise made to `new` is about; what was there needs no drop, as in `Out`.
            unsafe { self.pointer.add(place).write(value) }
        }
    }
}

/// The caller's memory that receives a new handle; it is NULL until there is one.
pub(crate) struct OutHandle<T>(Out<*mut T>);

impl<T> OutHandle<T> {
    /// Checks the pointer and writes NULL to it.
    ///
    /// # Safety
    /// The contract is that of [`Out::new`].
    pub(crate) unsafe fn new(pointer: *mut *mut T) -> Outcome<OutHandle<T>> {
        // SAFETY: the caller's promise, passed on.
        let out = unsafe { Out::new(pointer, "out") }?;
        Out(out.0).put(std::ptr::null_mut());
        Ok(OutHandle(out))
    }

    /// Gives the handle to the caller.
    pub(crate) fn put(self, value: T) {
        self.0.put(Box::into_raw(Box::new(value)));
    }
}

/// Takes a handle back and frees it; NULL is accepted.
///
/// # Safety
/// `handle` is null, or came from [`OutHandle::put`] and is used by nobody, now or later.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and nobody else has it.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Copies text with a NUL into the caller's buffer, or says how long it must be.
///
/// # Safety
/// `buffer` is null or may be written to for `capacity` bytes.
pub(crate) unsafe fn put_text(text: &str, buffer: *mut c_char, capacity: usize) -> Outcome {
    check(buffer, "buffer")?;
    if capacity <= text.len() {
        let expected = format!("at least {}, the final NUL included", text.len() + 1);
        return Err(Error::length("buffer", capacity, expected).into());
    }
    // SAFETY: the buffer holds `text.len() + 1` bytes, and nothing of ours lies in the caller's memory.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}
