//! A kernel under construction: its registers, constants and labels.

use std::collections::HashMap;

use super::inst::{Access, Code, Convert, Inst};
use super::operand::{Operand, Special, literal};
use super::types::Ty;
use super::{Constant, Global, Kernel, Module, PARAM_BASE, Param, Shared};

/// The shared memory that a block can have without asking for more.
const MAX_SHARED: usize = 49_152;

/// Registers declared under one name.
struct Declared {
    ty: Ty,
    first: u16,
    /// The number of registers in `%r<5>`; none for a single `%r`.
    count: Option<u32>,
}

/// The origin of a 64-bit constant: a value, or an offset from a module variable's address.
type Wide = (Option<usize>, u64);

pub(crate) struct Builder<'m> {
    globals: &'m [Global],
    /// The module's shared variables; a kernel has those that it names.
    module_shared: &'m [Shared],
    /// The number of the module's target, 70 for `sm_70`.
    target: u32,
    shared: Vec<Shared>,
    pub params: Vec<Param>,
    pub param_bytes: usize,
    declared: HashMap<String, Declared>,
    next: [u32; 2],
    constants32: HashMap<u32, u16>,
    constants64: HashMap<Wide, u16>,
    specials: HashMap<Special, u16>,
    carry: Option<u16>,
    labels: HashMap<String, u32>,
    branches: Vec<(usize, String)>,
    code: Vec<Inst>,
    lines: Vec<(u32, String)>,
    accesses: Vec<Access>,
    converts: Vec<Convert>,
}

type Result<T> = std::result::Result<T, String>;

impl<'m> Builder<'m> {
    pub(crate) fn new(module: &'m Module) -> Self {
        Self {
            globals: &module.globals,
            module_shared: &module.shared,
            target: module.target,
            shared: Vec::new(),
            params: Vec::new(),
            param_bytes: 0,
            declared: HashMap::new(),
            next: [0; 2],
            constants32: HashMap::new(),
            constants64: HashMap::new(),
            specials: HashMap::new(),
            carry: None,
            labels: HashMap::new(),
            branches: Vec::new(),
            code: Vec::new(),
            lines: Vec::new(),
            accesses: Vec::new(),
            converts: Vec::new(),
        }
    }

    pub(crate) fn param(&mut self, name: &str, size: usize, align: usize) -> Result<()> {
        if size == 0 || !align.is_power_of_two() {
            return Err(format!("parameter {name} of {size} bytes aligned to {align}"));
        }
        let offset = self.param_bytes.next_multiple_of(align);
        self.param_bytes = offset + size;
        self.params.push(Param { name: name.to_string(), offset, size });
        Ok(())
    }

    /// Refuses what a device of capability `least` is the first to have, unless the module's target promises one.
    pub(crate) fn needs(&self, least: u32) -> Result<()> {
        let target = self.target;
        if target >= least { Ok(()) } else { Err(format!("needs .target sm_{least}, not sm_{target}")) }
    }

    /// Adds a shared variable. Each begins 64 KiB after the one before it, so that running off an end hits nothing, and at no
    /// better alignment than it asks for.
    pub(crate) fn share(&mut self, variable: Shared) -> Result<u64> {
        let used: usize = self.shared.iter().map(|other| other.size).sum();
        if used + variable.size > MAX_SHARED {
            return Err(format!("more than {MAX_SHARED} bytes of shared memory"));
        }
        if self.shared.iter().any(|other| other.name == variable.name) {
            return Err(format!("{} declared twice", variable.name));
        }
        let address = Shared::address(self.shared.len(), variable.align);
        self.shared.push(variable);
        Ok(address)
    }

    /// The address of a shared variable of the kernel, or of one of the module, which becomes the kernel's.
    fn find_shared(&mut self, name: &str) -> Option<Result<u64>> {
        if let Some(at) = self.shared.iter().position(|variable| variable.name == name) {
            return Some(Ok(Shared::address(at, self.shared[at].align)));
        }
        let variable = self.module_shared.iter().find(|variable| variable.name == name)?.clone();
        Some(self.share(variable))
    }

    pub(crate) fn declare(&mut self, name: &str, ty: Ty, count: Option<u32>) -> Result<()> {
        let first = self.registers(ty.is_wide(), count.unwrap_or(1))?;
        match self.declared.insert(name.to_string(), Declared { ty, first, count }) {
            None => Ok(()),
            Some(_) => Err(format!("{name} declared twice")),
        }
    }

    fn registers(&mut self, wide: bool, count: u32) -> Result<u16> {
        let next = &mut self.next[usize::from(wide)];
        let first = *next;
        *next = next.checked_add(count).filter(|n| *n < u32::from(u16::MAX)).ok_or("too many registers")?;
        Ok(first as u16)
    }

    /// Allocates a register of the 32-bit file that no name refers to.
    pub(crate) fn temporary(&mut self) -> Result<u16> {
        self.registers(false, 1)
    }

    /// The register that holds the carry flag.
    pub(crate) fn carry(&mut self) -> Result<u16> {
        if self.carry.is_none() {
            self.carry = Some(self.registers(false, 1)?);
        }
        self.carry.ok_or_else(|| "no carry".to_string())
    }

    /// A declared register and its type, by name.
    pub(crate) fn register(&self, name: &str) -> Result<(u16, Ty)> {
        let unknown = || format!("unknown register {name}");
        if let Some(declared) = self.declared.get(name).filter(|declared| declared.count.is_none()) {
            return Ok((declared.first, declared.ty));
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number: u32 = name[stem.len()..].parse().map_err(|_| unknown())?;
        let declared = self.declared.get(stem).ok_or_else(unknown)?;
        let in_range = declared.count.is_some_and(|count| number < count);
        if in_range { Ok((declared.first + number as u16, declared.ty)) } else { Err(unknown()) }
    }

    /// A destination operand of exactly type `ty`.
    pub(crate) fn dst(&self, operand: &Operand, ty: Ty) -> Result<u16> {
        let (register, declared) = self.dst_any(operand)?;
        if ty.accepts(declared) { Ok(register) } else { Err(format!("a {declared:?} register for a {ty:?}")) }
    }

    /// A destination operand of any type.
    pub(crate) fn dst_any(&self, operand: &Operand) -> Result<(u16, Ty)> {
        match operand {
            Operand::Plain { text, negative: false } => self.register(text),
            _ => Err("the destination is not a register".to_string()),
        }
    }

    /// A source operand of exactly type `ty`: a register, special register or immediate.
    pub(crate) fn src(&mut self, operand: &Operand, ty: Ty) -> Result<u16> {
        let Operand::Plain { text, negative } = operand else {
            return Err("an operand is neither register nor immediate".to_string());
        };
        if *negative || text.starts_with(|c: char| c.is_ascii_digit()) {
            return self.constant(literal(text, *negative, ty)?, ty.is_wide());
        }
        if let Some(special) = Special::parse(text) {
            return self.special(special, ty);
        }
        let (register, declared) = self.register(text)?;
        if ty.accepts(declared) { Ok(register) } else { Err(format!("a {declared:?} register for a {ty:?}")) }
    }

    pub(crate) fn constant(&mut self, bits: u64, wide: bool) -> Result<u16> {
        if wide {
            return self.wide_constant((None, bits));
        }
        if let Some(&register) = self.constants32.get(&(bits as u32)) {
            return Ok(register);
        }
        let register = self.registers(false, 1)?;
        self.constants32.insert(bits as u32, register);
        Ok(register)
    }

    fn wide_constant(&mut self, constant: Wide) -> Result<u16> {
        if let Some(&register) = self.constants64.get(&constant) {
            return Ok(register);
        }
        let register = self.registers(true, 1)?;
        self.constants64.insert(constant, register);
        Ok(register)
    }

    fn special(&mut self, special: Special, ty: Ty) -> Result<u16> {
        if !ty.accepts(Ty::U32) {
            return Err(format!("a special register for a {ty:?}"));
        }
        if let Some(&register) = self.specials.get(&special) {
            return Ok(register);
        }
        let register = self.registers(false, 1)?;
        self.specials.insert(special, register);
        Ok(register)
    }

    /// The parameter of that name, if the kernel has one.
    pub(crate) fn find_param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    /// A register that holds the address of a module variable or parameter, plus `offset`.
    pub(crate) fn symbol(&mut self, name: &str, offset: i64) -> Result<u16> {
        if let Some(global) = self.globals.iter().position(|global| global.name == name) {
            return self.wide_constant((Some(global), offset as u64));
        }
        if let Some(address) = self.find_shared(name) {
            return self.wide_constant((None, address?.wrapping_add_signed(offset)));
        }
        let param = self.find_param(name).ok_or_else(|| format!("unknown symbol {name}"))?;
        let address = (PARAM_BASE + param.offset as u64).wrapping_add_signed(offset);
        self.wide_constant((None, address))
    }

    pub(crate) fn access(&mut self, access: Access) -> u32 {
        self.accesses.push(access);
        self.accesses.len() as u32 - 1
    }

    pub(crate) fn convert(&mut self, convert: Convert) -> u32 {
        self.converts.push(convert);
        self.converts.len() as u32 - 1
    }

    pub(crate) fn label(&mut self, name: &str) -> Result<()> {
        match self.labels.insert(name.to_string(), self.code.len() as u32) {
            None => Ok(()),
            Some(_) => Err(format!("label {name} twice")),
        }
    }

    /// Marks the next instruction pushed as a branch to `label`.
    pub(crate) fn branch_to(&mut self, label: &str) {
        self.branches.push((self.code.len(), label.to_string()));
    }

    pub(crate) fn push(&mut self, inst: Inst, line: u32, text: &str) {
        self.code.push(inst);
        self.lines.push((line, text.to_string()));
    }

    /// Resolves the branches and returns the kernel. Falling off the end returns, as PTX has it.
    pub(crate) fn finish(mut self, name: &str, line: u32) -> std::result::Result<Kernel, (u32, String)> {
        for (at, label) in std::mem::take(&mut self.branches) {
            let target = self.labels.get(&label);
            self.code[at].imm = *target.ok_or((self.lines[at].0, format!("unknown label {label}")))?;
        }
        self.push(Inst { weight: 0, ..Inst::new(Code::Return, 0, &[]) }, line, "}");
        let constants32 = self.constants32.into_iter();
        let constants64 = self.constants64.into_iter();
        let has_barriers = self.code.iter().any(|inst| inst.code == Code::Barrier);
        Ok(Kernel {
            name: name.to_string(),
            shared: self.shared,
            has_barriers,
            params: self.params,
            param_bytes: self.param_bytes,
            max_threads: None,
            required_threads: None,
            code: self.code,
            accesses: self.accesses,
            converts: self.converts,
            num_registers: self.next.map(|n| n as usize),
            constants32: constants32
                .map(|(value, register)| Constant { register, global: None, value: value.into() })
                .collect(),
            constants64: constants64
                .map(|((global, value), register)| Constant { register, global, value })
                .collect(),
            specials: self.specials.into_iter().map(|(special, register)| (register, special)).collect(),
            lines: self.lines,
        })
    }
}
