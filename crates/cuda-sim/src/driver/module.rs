//! Loaded modules and their kernels.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use super::boundary::{Out, call};
use super::context::current;
use super::handle::{Handle, Kind, decode, encode, serial, unknown};
use super::state::{self, Device, Mutation};
use crate::ptx::{self, Kernel};
use crate::status::{Failure, Status};

/// A module that is loaded on a device.
pub(super) struct Loaded {
    kernels: Vec<Arc<Kernel>>,
    /// Name, address and size of each variable.
    globals: Vec<(String, u64, usize)>,
}

impl Loaded {
    /// Whether a kernel is one of this module's.
    pub(super) fn has(&self, kernel: &Arc<Kernel>) -> bool {
        self.kernels.iter().any(|own| Arc::ptr_eq(own, kernel))
    }
}

/// The text that a C string pointer leads to.
///
/// # Safety
///
/// `pointer` is null or leads to a NUL-terminated string that outlives the result.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid_value("null instead of a text"));
    }
    // SAFETY: not null, so NUL-terminated and alive, by this function's contract.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::new(Status::InvalidImage, "not PTX: the text is not UTF-8"))
}

/// Loads a module from PTX text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: Out<Handle>, image: *const c_void) -> Status {
    call("cuModuleLoadData", || {
        // SAFETY: the driver's interface asks for a NUL-terminated text. An ELF image would have other bytes, but its
        // header contains zeros, which end it early, and it is not PTX.
        let text = unsafe { text(image.cast()) }?;
        let mut device = current()?;
        let text = mutated(text, &device.mutations)?;
        let parsed = ptx::parse(&text, device.capability())?;
        let loaded = link(&mut device, parsed)?;
        let key = serial();
        module.set(encode(Kind::Module, device.ordinal, key))?;
        device.modules.insert(key, loaded);
        Ok(())
    })
}

/// The text with the mutations that tests asked for.
fn mutated(text: &str, mutations: &[Mutation]) -> Result<String, Failure> {
    let mut out = text.to_string();
    for Mutation { from, to, nth, optional } in mutations {
        let found = out.match_indices(from.as_str()).nth(*nth).map(|(at, _)| at);
        if *optional && found.is_none() {
            continue;
        }
        let at = found.ok_or_else(|| {
            let text = format!("the mutation's text {from:?} does not occur {} times", nth + 1);
            Failure::new(Status::InvalidPtx, text)
        })?;
        out.replace_range(at..at + from.len(), to);
    }
    Ok(out)
}

/// Gives a module's variables memory, and its kernels the addresses.
fn link(device: &mut Device, module: ptx::Module) -> Result<Loaded, Failure> {
    let mut globals = Vec::with_capacity(module.globals.len());
    for global in module.globals {
        let address = device.memory.allocate(global.bytes.len(), global.kind)?;
        device.memory.write(address, &global.bytes)?;
        globals.push((global.name, address, global.bytes.len()));
    }
    let addresses: Vec<u64> = globals.iter().map(|(_, address, _)| *address).collect();
    let kernels = module.kernels.into_iter().map(|mut kernel| {
        kernel.link(&addresses);
        Arc::new(kernel)
    });
    Ok(Loaded { kernels: kernels.collect(), globals })
}

/// Unloads a module, with its functions and variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: Handle) -> Status {
    call("cuModuleUnload", || {
        let (ordinal, key) = decode(Kind::Module, module)?;
        let mut device = state::working(ordinal)?;
        let loaded = device.modules.remove(&key).ok_or_else(|| unknown(Kind::Module))?;
        device.functions.retain(|_, (module, _)| *module != key);
        loaded.globals.iter().try_for_each(|(_, address, _)| device.memory.free(*address))
    })
}

/// Returns a kernel of a module by name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: Out<Handle>,
    module: Handle,
    name: *const c_char,
) -> Status {
    call("cuModuleGetFunction", || {
        // SAFETY: the driver's interface asks for a NUL-terminated name.
        let name = unsafe { text(name) }?;
        let (ordinal, module) = decode(Kind::Module, module)?;
        let mut device = state::working(ordinal)?;
        let loaded = device.modules.get(&module).ok_or_else(|| unknown(Kind::Module))?;
        let kernel = loaded.kernels.iter().find(|kernel| kernel.name == name).cloned();
        let kernel = kernel.ok_or_else(|| Failure::new(Status::NotFound, format!("no kernel {name:?}")))?;
        let key = serial();
        function.set(encode(Kind::Function, ordinal, key))?;
        device.functions.insert(key, (module, kernel));
        Ok(())
    })
}

/// Returns the address and the size of a module's variable; either pointer may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetGlobal_v2(
    address: Out<u64>,
    len: Out<usize>,
    module: Handle,
    name: *const c_char,
) -> Status {
    call("cuModuleGetGlobal_v2", || {
        // SAFETY: the driver's interface asks for a NUL-terminated name.
        let name = unsafe { text(name) }?;
        let (ordinal, module) = decode(Kind::Module, module)?;
        let device = state::working(ordinal)?;
        let loaded = device.modules.get(&module).ok_or_else(|| unknown(Kind::Module))?;
        let global = loaded.globals.iter().find(|(known, _, _)| known == name);
        let missing = || Failure::new(Status::NotFound, format!("no variable {name:?}"));
        let (_, found, size) = global.ok_or_else(missing)?;
        if !address.as_ptr().is_null() {
            address.set(*found)?;
        }
        if len.as_ptr().is_null() { Ok(()) } else { len.set(*size) }
    })
}
