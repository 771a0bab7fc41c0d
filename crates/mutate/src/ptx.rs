//! A module's text: its kernels, their instructions, and which registers are live where.

use corrnoise::Dtype;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A PTX module of `crates/cuda/ptx/`.
pub struct Module {
    /// The file's name without `.ptx`.
    pub name: String,
    /// The whole text of the module.
    pub text: String,
    /// The kernels, in the order of the text.
    pub kernels: Vec<Kernel>,
}

/// One kernel of a module.
pub struct Kernel {
    /// The kernel's name, for instance `noise_bf16`.
    pub name: String,
    /// The lines between the kernel's braces, counted from 0.
    pub body: Range<usize>,
    /// The instructions, in the order of the text.
    pub instructions: Vec<Instruction>,
    /// Lines that can be jumped to.
    pub labels: Vec<usize>,
    /// Per register, the lines of its first mention and its last.
    spans: HashMap<String, (usize, usize)>,
}

/// One instruction of a kernel.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// The line in the module, counted from 0.
    pub line: usize,
    /// The guard, such as `@%p1` or `@!%p1`; empty if there is none.
    pub guard: String,
    /// The opcode, for instance `fma.rn.f32`.
    pub opcode: String,
    /// The operands, the destination first.
    pub operands: Vec<String>,
}

/// The folder of the kernels' sources.
pub fn kernels_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels")
}

/// Every module of `crates/cuda/ptx/`, by name.
pub fn committed() -> Result<Vec<Module>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/ptx");
    let wrong = |error| format!("{}: {error}", folder.display());
    let mut modules = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            modules.push(Module::new(name, std::fs::read_to_string(&path).map_err(wrong)?));
        }
    }
    modules.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(modules)
}

impl Module {
    /// Splits a module's text into kernels and instructions.
    pub fn new(name: String, text: String) -> Module {
        let lines: Vec<&str> = text.lines().collect();
        let mut kernels = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            if let Some(entry) = lines[at].strip_prefix(".visible .entry ") {
                let open = at + lines[at..].iter().position(|line| *line == "{").unwrap_or(0);
                let close = open + lines[open..].iter().position(|line| *line == "}").unwrap_or(0);
                let name = entry.trim_end_matches('(').to_owned();
                kernels.push(Kernel::new(name, open + 1..close, &lines));
                at = close;
            }
            at += 1;
        }
        Module { name, text, kernels }
    }

    /// The number types of gradients whose steps run the module; f32 for one that makes rows, whatever they are added to.
    pub fn dtypes(&self) -> Vec<Dtype> {
        let has = |dtype: &Dtype| {
            self.kernels.iter().any(|kernel| kernel.is_main() && kernel.element() == dtype.name())
        };
        Dtype::ALL.into_iter().filter(has).collect()
    }

    /// The text with one line replaced, and with the bodies of the noise kernels other than `kernel` emptied: nothing runs
    /// them, and the module loads three times as fast.
    pub fn with_line(&self, kernel: &Kernel, line: usize, replacement: &str) -> String {
        let mut lines: Vec<&str> = self.text.lines().collect();
        if line < lines.len() {
            lines[line] = replacement;
        }
        let keep = if kernel.name.starts_with("noise") { &kernel.name } else { "noise_f32" };
        for other in self.kernels.iter().filter(|k| k.name.starts_with("noise") && k.name != keep) {
            lines[other.body.clone()].fill("");
            lines[other.body.start] = "\tret;";
        }
        lines.join("\n")
    }
}

impl Kernel {
    fn new(name: String, body: Range<usize>, lines: &[&str]) -> Kernel {
        let instructions: Vec<_> =
            body.clone().filter_map(|line| Instruction::parse(line, lines[line])).collect();
        let mut spans: HashMap<String, (usize, usize)> = HashMap::new();
        for instruction in &instructions {
            for register in instruction.registers() {
                let span = spans.entry(register).or_insert((instruction.line, instruction.line));
                span.1 = instruction.line;
            }
        }
        let labels = body.clone().filter(|line| lines[*line].starts_with('$')).collect();
        Kernel { name, body, instructions, labels, spans }
    }

    /// Whether the kernel makes or adds noise; `stage`, `advance` and `finish` help those that do.
    pub fn is_main(&self) -> bool {
        self.name == "make" || self.name.starts_with("noise")
    }

    /// The gradient type that the kernel is for; f32 for `make`, `stage` and `advance`, which have none.
    pub fn element(&self) -> &str {
        self.name.strip_prefix("noise_").unwrap_or("f32")
    }

    /// Registers of the same type as `register` that were mentioned before `line` and are mentioned at or after it.
    pub fn live(&self, register: &str, line: usize) -> Vec<&str> {
        let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
        let wanted = stem(register);
        let mut live: Vec<&str> = self
            .spans
            .iter()
            .filter(|(name, (first, last))| {
                *first < line && *last >= line && name.as_str() != register && stem(name) == wanted
            })
            .map(|(name, _)| name.as_str())
            .collect();
        live.sort_unstable();
        live
    }
}

impl Instruction {
    /// Parses the instruction of a line, if it has one.
    pub fn parse(line: usize, text: &str) -> Option<Instruction> {
        let text = text.trim().strip_suffix(';')?;
        if text.starts_with(['.', '/', '$', '{', '}']) {
            return None;
        }
        let (guard, rest) = match text.starts_with('@') {
            true => text.split_once(' ')?,
            false => ("", text),
        };
        let rest = rest.trim();
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        Some(Instruction { line, guard: guard.into(), opcode: opcode.into(), operands: split(operands) })
    }

    /// The instruction as a line of PTX.
    pub fn text(&self) -> String {
        let guard = if self.guard.is_empty() { String::new() } else { format!("{} ", self.guard) };
        format!("\t{guard}{} \t{};", self.opcode, self.operands.join(", ")).replace(" \t;", ";")
    }

    /// Every register that the instruction names.
    pub fn registers(&self) -> Vec<String> {
        let words = self.operands.iter().chain([&self.guard]);
        let names =
            words.flat_map(|word| word.split(|c: char| !(c.is_ascii_alphanumeric() || "%._".contains(c))));
        names.filter(|name| name.starts_with('%') && !name.contains('.')).map(str::to_owned).collect()
    }
}

/// Splits at commas outside of braces.
fn split(operands: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut depth = 0;
    let mut word = String::new();
    for c in operands.trim().chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            out.push(std::mem::take(&mut word).trim().to_owned());
        } else {
            word.push(c);
        }
    }
    if !word.trim().is_empty() {
        out.push(word.trim().to_owned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_committed_line_is_parsed_and_written_again() {
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let modules = committed().unwrap();
        assert!(modules.len() >= 35);
        for module in &modules {
            let lines: Vec<&str> = module.text.lines().collect();
            let makes = module.name.starts_with("make_") || module.name.ends_with("_80");
            assert_eq!(module.kernels.len(), if makes { 1 } else { 6 }, "{}", module.name);
            for kernel in &module.kernels {
                for instruction in &kernel.instructions {
                    let line = lines[instruction.line];
                    assert_eq!(squeeze(&instruction.text()), squeeze(line), "{}", module.name);
                }
                let count =
                    |part: &str| lines[kernel.body.clone()].iter().filter(|l| l.contains(part)).count();
                assert_eq!(
                    kernel.instructions.len(),
                    count(";") - [".reg", ".pragma", ".shared .align"].map(count).iter().sum::<usize>()
                );
            }
        }
    }

    #[test]
    fn a_live_register_has_been_written_and_will_be_read() {
        let body = "\tmov.u32 \t%r1, 1;\n\tmov.u32 \t%r2, 2;\n\tmov.f32 \t%f1, 0f00000000;\n\tadd.s32 \t%r3, %r1, %r2;\n\
                    \tadd.s32 \t%r4, %r3, %r1;\n\tret;";
        let text = format!(".visible .entry k(\n)\n{{\n{body}\n}}\n");
        let module = Module::new("m".into(), text);
        let kernel = &module.kernels[0];
        let line = kernel.instructions[4].line;
        assert_eq!(kernel.live("%r1", line), ["%r3"]);
        assert_eq!(kernel.live("%r1", line - 1), ["%r2"]);
    }
}
