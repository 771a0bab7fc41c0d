//! The parser of a module's structure: directives, variables, kernels, statements.

use super::build::Builder;
use super::decode::decode;
use super::lex::{Token, tokens};
use super::operand::{Operand, literal, magnitude};
use super::types::Ty;
use super::{Global, Kernel, Module, Shared};
use crate::memory;
use crate::status::{Failure, Status};

/// The newest PTX version that a CUDA 12.0 driver accepts.
const NEWEST_VERSION: (u64, u64) = (8, 0);

/// Parses a module for a device of compute capability `capability` (80 for 8.0).
pub(crate) fn parse(text: &str, capability: u32) -> std::result::Result<Module, Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let tokens = tokens(text).map_err(|error| refuse(&lines, Status::InvalidPtx, error))?;
    let mut parser = Parser { tokens: &tokens, at: 0, start: 0, lines: &lines, status: Status::InvalidPtx };
    parser.module(capability).map_err(|text| {
        let line = parser.line();
        refuse(&lines, parser.status, (line, text))
    })
}

fn refuse(lines: &[&str], status: Status, (line, text): (u32, String)) -> Failure {
    let source = lines.get(line as usize - 1).map_or("", |source| source.trim());
    Failure::new(status, format!("PTX line {line} `{source}`: {text}"))
}

struct Parser<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
    /// The token at which the current statement began, for messages.
    start: usize,
    lines: &'t [&'t str],
    /// The status with which a mistake is refused.
    status: Status,
}

type Result<T> = std::result::Result<T, String>;

impl<'t> Parser<'t> {
    /// The line of the current statement.
    fn line(&self) -> u32 {
        self.tokens.get(self.start).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    fn peek(&self) -> &'t str {
        self.tokens.get(self.at).map_or("", |token| token.text)
    }

    fn next(&mut self) -> &'t str {
        let text = self.peek();
        self.at += 1;
        text
    }

    fn accept(&mut self, text: &str) -> bool {
        let found = self.peek() == text;
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let found = self.next();
        if found == text { Ok(()) } else { Err(format!("expected {text:?}, found {found:?}")) }
    }

    fn number(&mut self) -> Result<u64> {
        let text = self.next();
        magnitude(text).ok_or_else(|| format!("expected a number, found {text:?}"))
    }

    fn small(&mut self) -> Result<u32> {
        self.number()?.try_into().map_err(|_| "number too large".to_string())
    }

    fn ty(&mut self) -> Result<Ty> {
        let text = self.next();
        let ty = text.strip_prefix('.').and_then(Ty::parse);
        ty.ok_or_else(|| format!("expected a type, found {text:?}"))
    }

    fn module(&mut self, capability: u32) -> Result<Module> {
        let target = self.header(capability)?;
        let mut module = Module { target, kernels: Vec::new(), globals: Vec::new(), shared: Vec::new() };
        while self.at < self.tokens.len() {
            self.start = self.at;
            self.accept(".visible");
            match self.next() {
                ".global" => module.globals.push(self.variable(memory::Kind::Global)?),
                ".const" => module.globals.push(self.variable(memory::Kind::Const)?),
                ".shared" => module.shared.push(self.shared()?),
                ".entry" => {
                    let kernel = self.kernel(&module)?;
                    module.kernels.push(kernel);
                }
                other => return Err(format!("unknown directive {other:?}")),
            }
        }
        Ok(module)
    }

    /// Parses what a module begins with; returns the number of its target.
    fn header(&mut self, capability: u32) -> Result<u32> {
        self.expect(".version")?;
        let version = self.next();
        let numbers = version.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
        let Some((Ok(major), Ok(minor))) = numbers else {
            return Err(format!("unknown version {version:?}"));
        };
        if (major, minor) > NEWEST_VERSION {
            self.status = Status::UnsupportedPtxVersion;
            return Err(format!("a CUDA 12.0 driver takes PTX up to 8.0, not {version}"));
        }
        self.start = self.at;
        self.expect(".target")?;
        let target = self.next();
        let number = target.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok());
        let number = number.ok_or_else(|| format!("unknown target {target:?}"))?;
        if number > capability {
            self.status = Status::NoBinaryForGpu;
            return Err(format!("{target} is beyond this device's capability, {capability}"));
        }
        self.start = self.at;
        self.expect(".address_size")?;
        self.expect("64")?;
        Ok(number)
    }

    /// Parses what a variable begins with, such as `.align 4 .b8 name[24]`: its alignment, type, name and number of elements.
    fn declaration(&mut self) -> Result<(usize, Ty, String, usize)> {
        let align = if self.accept(".align") { Some(self.small()? as usize) } else { None };
        if let Some(align) = align.filter(|align| !align.is_power_of_two() || *align > 256) {
            return Err(format!("alignment {align}"));
        }
        let ty = self.ty()?;
        let name = self.next().to_string();
        let mut count = 1;
        if self.accept("[") {
            count = self.small()? as usize;
            self.expect("]")?;
        }
        if ty.bytes() == 0 || count == 0 {
            return Err(format!("variable {name} has no size"));
        }
        Ok((align.unwrap_or(ty.bytes()), ty, name, count))
    }

    /// Parses a shared variable, which has no initialiser.
    fn shared(&mut self) -> Result<Shared> {
        let (align, ty, name, count) = self.declaration()?;
        self.expect(";")?;
        Ok(Shared { name, size: ty.bytes() * count, align })
    }

    /// Parses a variable, such as `.global .align 4 .b8 name[24] = {65, …};`.
    fn variable(&mut self, kind: memory::Kind) -> Result<Global> {
        let (_, ty, name, count) = self.declaration()?;
        let mut bytes = vec![0; ty.bytes() * count];
        if self.accept("=") {
            self.initialiser(ty, &mut bytes)?;
        }
        self.expect(";")?;
        Ok(Global { name, kind, bytes })
    }

    fn initialiser(&mut self, ty: Ty, bytes: &mut [u8]) -> Result<()> {
        let list = self.accept("{");
        for (i, element) in bytes.chunks_exact_mut(ty.bytes()).enumerate() {
            if i > 0 && !(list && self.accept(",")) {
                break;
            }
            let negative = self.accept("-");
            let value = literal(self.next(), negative, ty)?;
            element.copy_from_slice(&value.to_le_bytes()[..ty.bytes()]);
        }
        if list { self.expect("}") } else { Ok(()) }
    }

    fn kernel(&mut self, module: &Module) -> Result<Kernel> {
        let name = self.next();
        let mut builder = Builder::new(module);
        if self.accept("(") && !self.accept(")") {
            loop {
                self.start = self.at;
                self.param(&mut builder)?;
                if self.accept(")") {
                    break;
                }
                self.expect(",")?;
            }
        }
        let (mut max_threads, mut required_threads) = (None, None);
        loop {
            self.start = self.at;
            match self.next() {
                ".maxntid" => max_threads = Some(self.dimensions()?),
                ".reqntid" => required_threads = Some(self.dimensions()?),
                ".minnctapersm" => drop(self.small()?),
                "{" => break,
                other => return Err(format!("unknown kernel directive {other:?}")),
            }
        }
        while !self.accept("}") {
            self.start = self.at;
            self.statement(&mut builder)?;
        }
        let line = self.tokens[self.at - 1].line;
        let kernel = builder.finish(name, line).map_err(|(line, text)| {
            self.start = self.tokens.iter().position(|token| token.line == line).unwrap_or(self.start);
            text
        })?;
        Ok(Kernel { max_threads, required_threads, ..kernel })
    }

    /// Parses one to three numbers; a missing one is 1.
    fn dimensions(&mut self) -> Result<[u32; 3]> {
        let mut out = [1; 3];
        for (i, dimension) in out.iter_mut().enumerate() {
            if i > 0 && !self.accept(",") {
                break;
            }
            *dimension = self.small()?;
        }
        Ok(out)
    }

    /// Parses a parameter, such as `.param .u64 name` or `.param .align 8 .b8 name[96]`.
    fn param(&mut self, builder: &mut Builder) -> Result<()> {
        self.expect(".param")?;
        let align = if self.accept(".align") { Some(self.small()? as usize) } else { None };
        let ty = self.ty()?;
        let name = self.next();
        let mut size = ty.bytes();
        if self.accept("[") {
            size *= self.small()? as usize;
            self.expect("]")?;
        }
        builder.param(name, size, align.unwrap_or(ty.bytes()))
    }

    fn statement(&mut self, builder: &mut Builder) -> Result<()> {
        match self.peek() {
            "" => Err("the kernel has no end".to_string()),
            ".reg" => self.registers(builder),
            ".shared" => {
                self.at += 1;
                builder.share(self.shared()?).map(drop)
            }
            ".pragma" => {
                self.at += 1;
                self.expect("\"nounroll\"")?;
                self.expect(";")
            }
            label if self.tokens.get(self.at + 1).is_some_and(|token| token.text == ":") => {
                self.at += 2;
                builder.label(label)
            }
            _ => self.instruction(builder),
        }
    }

    /// Parses a declaration of registers, such as `.reg .b32 %r<5>;` or `.reg .b64 %SP, %SPL;`.
    fn registers(&mut self, builder: &mut Builder) -> Result<()> {
        self.at += 1;
        let ty = self.ty()?;
        loop {
            let name = self.next();
            if !name.starts_with('%') {
                return Err(format!("{name:?} is no name of a register"));
            }
            let mut count = None;
            if self.accept("<") {
                count = Some(self.small()?);
                self.expect(">")?;
            }
            builder.declare(name, ty, count)?;
            if self.accept(";") {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    fn instruction(&mut self, builder: &mut Builder) -> Result<()> {
        let mut guard = None;
        if self.accept("@") {
            let negate = self.accept("!");
            guard = Some((self.next(), negate));
        }
        let opcode = self.next();
        let mut operands = Vec::new();
        if !self.accept(";") {
            loop {
                operands.push(self.operand()?);
                if self.accept(";") {
                    break;
                }
                self.expect(",")?;
            }
        }
        let line = self.line();
        let source = self.lines.get(line as usize - 1).map_or("", |source| source.trim());
        for mut inst in decode(builder, opcode, &operands)? {
            if let Some((name, negate)) = guard {
                let predicate = Operand::Plain { text: name, negative: false };
                (inst.guard, inst.negate) = (builder.dst(&predicate, Ty::Pred)?, negate);
            }
            builder.push(inst, line, source);
        }
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand<'t>> {
        if self.accept("{") {
            let mut elements = vec![self.operand()?];
            while self.accept(",") {
                elements.push(self.operand()?);
            }
            self.expect("}")?;
            return Ok(Operand::Vector(elements));
        }
        if self.accept("[") {
            let base = self.next();
            let mut offset = 0;
            if self.accept("+") {
                let negative = self.accept("-");
                offset = i64::from(self.small()?);
                offset = if negative { -offset } else { offset };
            }
            self.expect("]")?;
            return Ok(Operand::Address { base, offset });
        }
        if self.accept("!") {
            return Ok(Operand::Not(self.next()));
        }
        let negative = self.accept("-");
        Ok(Operand::Plain { text: self.next(), negative })
    }
}
