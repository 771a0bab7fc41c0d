//! The PTX front end: from text to typed operations.
//!
//! Whatever is not known exactly, be it a directive, an opcode, a modifier, a type or an operand, is refused with its line: a
//! stand-in that guesses would test the guess. For the same reason float arithmetic must say `.rn` or `.rz` (without it, the
//! compiler behind PTX may fuse) and may not say `.ftz`, `.approx` or `.sat`; the one
//! exception is `rsqrt.approx.ftz.f32`, whose result is any that its documented error allows.

mod build;
mod decode;
mod inst;
mod lex;
mod operand;
mod parse;
mod types;

pub(crate) use inst::{Access, Code, Convert, Inst, Kind, NONE, Round};
pub(crate) use operand::Special;
pub(crate) use parse::parse;
pub(crate) use types::Ty;

use crate::memory;

/// The address that `mov` gives for a kernel's parameters; no allocation has it. `ld.param` through a register is relative to it.
pub(crate) const PARAM_BASE: u64 = 1 << 52;

/// Where the generic addresses of shared memory begin: what `cvta.shared` adds to an address.
pub(crate) const SHARED_WINDOW: u64 = 1 << 51;

/// A parsed module: its kernels and variables.
pub(crate) struct Module {
    /// The number of the module's target, 70 for `sm_70`.
    pub target: u32,
    pub shared: Vec<Shared>,
    pub kernels: Vec<Kernel>,
    pub globals: Vec<Global>,
}

/// A variable of a module, outside its kernels.
pub(crate) struct Global {
    pub name: String,
    pub kind: memory::Kind,
    pub bytes: Vec<u8>,
}

/// A variable in the memory that the threads of a block share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub name: String,
    pub size: usize,
    pub align: usize,
}

impl Shared {
    /// The distance between the addresses of two variables, as a power of two.
    pub(crate) const SHIFT: u32 = 16;

    /// The address of the variable with number `index`: a multiple of `align`, and of no larger power of two.
    pub(crate) fn address(index: usize, align: usize) -> u64 {
        ((index as u64 + 1) << Self::SHIFT) + align as u64
    }
}

/// A kernel parameter's place in the parameter block.
pub(crate) struct Param {
    pub name: String,
    pub offset: usize,
    pub size: usize,
}

/// A constant that a register holds from the start and that no instruction overwrites.
pub(crate) struct Constant {
    pub register: u16,
    /// Index of the module variable whose address is added to `value`.
    pub global: Option<usize>,
    pub value: u64,
}

/// A decoded kernel, ready to run.
pub(crate) struct Kernel {
    pub name: String,
    pub params: Vec<Param>,
    pub param_bytes: usize,
    /// The block dimensions of `.maxntid`, if given.
    pub max_threads: Option<[u32; 3]>,
    /// The block dimensions of `.reqntid`, if given.
    pub required_threads: Option<[u32; 3]>,
    /// The kernel's shared variables.
    pub shared: Vec<Shared>,
    /// Whether warps of a block wait for each other.
    pub has_barriers: bool,
    pub code: Vec<Inst>,
    pub accesses: Vec<Access>,
    pub converts: Vec<Convert>,
    /// The sizes of the two register files, of 32 bits and of 64 bits.
    pub num_registers: [usize; 2],
    pub constants32: Vec<Constant>,
    pub constants64: Vec<Constant>,
    pub specials: Vec<(u16, Special)>,
    /// The line number and the text of every instruction.
    pub lines: Vec<(u32, String)>,
}

impl Kernel {
    /// Puts the addresses of the module's variables into the constants that need them.
    pub(crate) fn link(&mut self, addresses: &[u64]) {
        for constant in &mut self.constants64 {
            if let Some(global) = constant.global.take() {
                constant.value = constant.value.wrapping_add(addresses[global]);
            }
        }
    }

    /// Whether threads of a launch can be ordered: they have barriers, or shared memory, which needs them.
    pub(crate) fn needs_order(&self) -> bool {
        !self.shared.is_empty()
            || self.has_barriers
            || self.code.iter().any(|inst| inst.code == Code::WarpBarrier)
    }

    /// Whether `[offset, offset + len)` of the parameter block lies inside one parameter.
    pub(crate) fn in_one_param(&self, offset: u64, len: u64) -> bool {
        self.params.iter().any(|param| {
            let at = offset.wrapping_sub(param.offset as u64);
            at < param.size as u64 && len <= param.size as u64 - at
        })
    }
}
