//! A small safe wrapper around the exported functions, for tests that link them directly.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod eval;

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::{Condvar, Mutex, PoisonError};

use cuda::Status;
use cuda::driver::*;

/// A failed call: its status and what `cuGetErrorString` says about it.
#[derive(Debug, PartialEq)]
pub struct Error {
    pub status: Status,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Error>;

pub fn check(status: Status) -> Result<()> {
    if status == Status::Success {
        return Ok(());
    }
    let mut text = std::ptr::null();
    // SAFETY: `text` is writable, and what it then points to lives for ever.
    let text = unsafe {
        assert_eq!(cuGetErrorString(status as u32, Out::new(&mut text)), Status::Success);
        CStr::from_ptr(text).to_string_lossy().into_owned()
    };
    Err(Error { status, text })
}

/// Calls `f` with an out-pointer and returns what it wrote.
pub fn get<T: Copy>(mut value: T, f: impl FnOnce(Out<T>) -> Status) -> Result<T> {
    // SAFETY: `value` outlives the call.
    check(f(unsafe { Out::new(&mut value) }))?;
    Ok(value)
}

/// Devices that no test holds: a fault, or what a test counts, must not reach another test.
static FREE: Mutex<[bool; 8]> = Mutex::new([true; 8]);
static FREED: Condvar = Condvar::new();

/// A device that no other test uses, with a fresh context that is current on this thread.
pub struct Gpu {
    pub ordinal: usize,
}

impl Gpu {
    /// Takes any free device but the last one, which is too old for the kernels.
    pub fn new() -> Self {
        Self::among(0..6)
    }

    pub fn among(wanted: std::ops::Range<usize>) -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = |free: &mut [bool; 8]| !wanted.clone().any(|ordinal| free[ordinal]);
        let mut free = FREED.wait_while(free, taken).unwrap_or_else(PoisonError::into_inner);
        let ordinal = wanted.clone().find(|ordinal| free[*ordinal]).expect("one is free");
        free[ordinal] = false;
        drop(free);
        // SAFETY: out-pointers come from `get`, the handle from the library.
        unsafe {
            check(cuInit(0)).unwrap();
            let context = get(null_mut(), |out| cuDevicePrimaryCtxRetain(out, ordinal as i32)).unwrap();
            check(cuCtxSetCurrent(context)).unwrap();
        }
        Self { ordinal }
    }

    pub fn load(&self, ptx: &str) -> Result<Handle> {
        let text = CString::new(ptx).unwrap();
        // SAFETY: the text is NUL-terminated.
        get(null_mut(), |out| unsafe { cuModuleLoadData(out, text.as_ptr().cast()) })
    }

    /// A kernel of a freshly loaded module.
    pub fn kernel(&self, ptx: &str, name: &str) -> Handle {
        function(self.load(ptx).unwrap_or_else(|error| panic!("{}", error.text)), name).unwrap()
    }

    pub fn alloc(&self, len: usize) -> u64 {
        // SAFETY: the out-pointer comes from `get`.
        get(0, |out| unsafe { cuMemAlloc_v2(out, len) }).unwrap()
    }

    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let address = self.alloc(size_of_val(values));
        self.write(address, values).unwrap();
        address
    }

    pub fn write<T: Copy>(&self, address: u64, values: &[T]) -> Result<()> {
        // SAFETY: the slice is as long as its size says.
        check(unsafe { cuMemcpyHtoD_v2(address, values.as_ptr().cast(), size_of_val(values)) })
    }

    pub fn read<T: Copy + Default>(&self, address: u64, count: usize) -> Result<Vec<T>> {
        let mut values = vec![T::default(); count];
        let len = size_of_val(&values[..]);
        // SAFETY: the vector is as long as its size says, and tests use number types, for which all bytes are valid.
        check(unsafe { cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, len) })?;
        Ok(values)
    }

    pub fn launch(&self, function: Handle, grid: u32, block: u32, args: &[Arg]) -> Result<()> {
        self.launch_on(null_mut(), function, [grid, 1, 1], [block, 1, 1], args)
    }

    pub fn launch_on(
        &self,
        stream: Handle,
        function: Handle,
        grid: [u32; 3],
        block: [u32; 3],
        args: &[Arg],
    ) -> Result<()> {
        let bytes: Vec<Vec<u8>> = args.iter().map(Arg::bytes).collect();
        let mut pointers: Vec<*mut c_void> = bytes.iter().map(|b| b.as_ptr().cast_mut().cast()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        // SAFETY: tests pass one argument per parameter, of its size.
        check(unsafe {
            cuLaunchKernel(function, gx, gy, gz, bx, by, bz, 0, stream, pointers.as_mut_ptr(), null_mut())
        })
    }

    pub fn stream(&self) -> Handle {
        // SAFETY: the out-pointer comes from `get`.
        get(null_mut(), |out| unsafe { cuStreamCreate(out, 1) }).unwrap()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { cuDevicePrimaryCtxRelease_v2(self.ordinal as i32) }, Status::Success);
        FREE.lock().unwrap_or_else(PoisonError::into_inner)[self.ordinal] = true;
        FREED.notify_all();
    }
}

/// A kernel argument of one of the parameter types.
pub enum Arg {
    U32(u32),
    U64(u64),
    Bytes(Vec<u8>),
}

impl Arg {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Arg::U32(value) => value.to_le_bytes().to_vec(),
            Arg::U64(value) => value.to_le_bytes().to_vec(),
            Arg::Bytes(bytes) => bytes.clone(),
        }
    }
}

pub fn function(module: Handle, name: &str) -> Result<Handle> {
    let name = CString::new(name).unwrap();
    // SAFETY: the name is NUL-terminated.
    get(null_mut(), |out| unsafe { cuModuleGetFunction(out, module, name.as_ptr()) })
}

/// A module with one kernel `k` of parameters `params` and some registers of every type.
pub fn module(params: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k({params})\n{{\n\
         .reg .pred %p<10>;\n.reg .b16 %h<10>;\n.reg .b32 %r<10>;\n.reg .f32 %f<10>;\n.reg .b64 %d<20>;\n\
         {body}\nret;\n}}\n"
    )
}
