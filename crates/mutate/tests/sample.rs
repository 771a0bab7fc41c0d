//! A sample of mutants, judged in every `cargo test`; `cargo run -p corrnoise-mutate -- --count 300` is the long run.

use corrnoise_mutate::coverage::unreached;
use corrnoise_mutate::draw::Filter;
use corrnoise_mutate::judge::Verdict;
use corrnoise_mutate::ptx::{self, Instruction, Module};
use corrnoise_mutate::run::{Options, Suite, run};
use half::f16;

/// Serialises the tests, which share devices of the stand-in.
static DEVICES: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// One module of each kind, with the number of instructions that no small case reaches, or of branches that go one way only. The cases of
/// a module and gradient type cost far more than a mutant, so few modules are used.
const MODULES: [(&str, usize); 8] = [
    ("add", 1),
    ("blt2_80", 2),
    ("make_blt2", 22),
    ("make_regenerate", 23),
    ("make_ring8", 26),
    ("blt2", 7),
    ("regenerate", 7),
    ("ring", 7),
];

/// A filter for these modules.
fn some_modules() -> Filter {
    Filter { modules: MODULES.map(|(name, _)| name.to_owned()).to_vec(), ..Filter::default() }
}

#[test]
fn a_sample_of_mutants_is_noticed() {
    let _alone = DEVICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let options =
        Options { seed: 20, count: 40, filter: some_modules(), jobs: 2, verbose: false, trust: false };
    let report = run(&ptx::committed().unwrap(), &options).unwrap();
    println!("{report}");
    assert!(report.unexplained().is_empty() && report.misjudged().is_empty(), "{report}");
    // About 9 in 10 are killed; the others must belong to an excused class.
    assert!(report.killed() >= 30, "{report}");
}

#[test]
fn the_same_seed_names_the_same_mutants() {
    let modules = ptx::committed().unwrap();
    let draw = |seed| corrnoise_mutate::draw::Draw::new(&modules[..2], &Filter::default(), seed);
    let first: Vec<String> = draw(7).take(20).map(|mutant| mutant.after).collect();
    assert_eq!(first, draw(7).take(20).map(|mutant| mutant.after).collect::<Vec<_>>());
    assert_ne!(first, draw(8).take(20).map(|mutant| mutant.after).collect::<Vec<_>>());
}

/// Every instruction runs, and every branch is taken both ways, except what the host never allows: the number of rounds is never 0 (two
/// branches per kernel that samples), and `stage` has exactly as many threads as words. A turn has rows, a sum has terms, and 64 ages of
/// eight coefficients are as many quads as threads; and no test has 2³² steps or 2²⁸ tiles, which divisions in 64 bits are for.
#[test]
fn small_cases_reach_every_instruction() {
    let _alone = DEVICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let modules = ptx::committed().unwrap();
    let missed = unreached(&modules, &some_modules()).unwrap();
    for (name, expected) in MODULES {
        let module = modules.iter().find(|module| module.name == name).expect("the module");
        let divides = |one: &&Instruction| one.opcode.starts_with("div.");
        let divisions = module.kernels.iter().flat_map(|kernel| kernel.instructions.iter().filter(divides));
        // Behind the last division there is one jump.
        let last = divisions.map(|div| div.line + 1).max().unwrap_or(0);
        let missed: Vec<_> = missed.iter().filter(|line| line.module == name).collect();
        assert_eq!(missed.len(), expected, "{missed:#?}");
        for line in missed {
            assert!(line.what == "its guard is never true" || line.line <= last, "{line}");
        }
    }
}

/// The `nth` line of a kernel that contains `part`, with its replacement.
fn changed(module: &Module, kernel: &str, part: &str, nth: usize, to: impl Fn(&str) -> String) -> String {
    let kernel = module.kernels.iter().find(|k| k.name == kernel).expect("the kernel");
    let lines: Vec<&str> = module.text.lines().collect();
    let line = kernel.body.clone().filter(|line| lines[*line].contains(part)).nth(nth).expect("the line");
    let changed = to(lines[line]);
    assert_ne!(changed, lines[line]);
    module.with_line(kernel, line, &changed)
}

/// The branches on whether the last buffer of a BLT is still zero, made unconditional.
fn not_fresh(module: &Module) -> Vec<(usize, String)> {
    let kernel = module.kernels.iter().find(|kernel| kernel.name == "noise_f16").expect("the kernel");
    let pairs = kernel.instructions.windows(2);
    let zeros = |pair: &&[Instruction]| {
        pair[0].opcode == "bra"
            && !pair[0].guard.is_empty()
            && pair[1].text().ends_with(", 0f00000000;")
            && pair[1].opcode == "mov.f32"
    };
    let always = |pair: &[Instruction]| {
        let bra = Instruction { guard: String::new(), ..pair[0].clone() };
        (bra.line, module.with_line(kernel, bra.line, &bra.text()))
    };
    let found: Vec<_> = pairs.filter(zeros).map(always).collect();
    assert_eq!(found.len(), 4, "one per four coordinates of a thread");
    found
}

/// The register of a key's place among the keys of a schedule.
fn masked(module: &Module) -> String {
    let kernel = module.kernels.iter().find(|kernel| kernel.name == "noise_f16").expect("the kernel");
    let mask =
        kernel.instructions.iter().find(|and| and.operands.get(2).is_some_and(|mask| mask == "2097120"));
    mask.expect("a mask").operands[0].clone()
}

/// The register of the lower word of a row's name, where a tail block ends: the upper word, which comes last, is rounded off.
fn lower_name(module: &Module) -> String {
    let kernel = module.kernels.iter().find(|kernel| kernel.name == "noise_f16").expect("the kernel");
    let limit = |setp: &&Instruction| setp.opcode == "setp.gt.u32" && setp.operands[2] == "65535";
    // The first limit stands behind the tail block.
    let first = kernel.instructions.iter().find(limit).expect("a limit").line;
    let before = kernel.instructions.iter().rev().skip_while(|other| other.line >= first);
    let words = before.filter(|add| add.opcode == "add.s32");
    words.map(|add| add.operands[2].clone()).nth(1).expect("the last word but one")
}

/// The tests notice mistakes that an earlier set of tests did not.
#[test]
fn known_mistakes_are_noticed() {
    let _alone = DEVICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let modules = ptx::committed().unwrap();
    let module = |name: &str| modules.iter().find(|module| module.name == name).expect("the module");
    let [of_regenerate, of_blt8, of_ring] =
        ["regenerate", "blt8", "ring"].map(|name| Suite::<f16>::new(name).unwrap());
    let noticed = |module: &Module, text: &str, what: &str| {
        let suite = match module.name.as_str() {
            "regenerate" => &of_regenerate,
            "blt8" => &of_blt8,
            _ => &of_ring,
        };
        let verdict = suite.judge(2, &module.text, text, false);
        println!("{what}: {verdict:?}");
        assert!(matches!(verdict, Verdict::Killed(_)), "{what}: {verdict:?}");
    };
    let regenerate = module("regenerate");
    let mask = |mask: &'static str| {
        changed(regenerate, "noise_f16", ", 2097120;", 0, move |line| line.replace("2097120", mask))
    };
    noticed(regenerate, &mask("8160"), "256 incarnations");
    noticed(regenerate, &mask("1048544"), "32,768 incarnations");
    let blt8 = module("blt8");
    // The mistakes are in some of the tests: one by one those of first values, then those of second ones, and both by fours. Each number
    // is once a mask and once a summand.
    let masks = [
        (", 32767;", 0..8, ", 65535;"),
        (", 2147450879;", 0..16, ", -32769;"),
        (", 2147450879;", 8..16, ", 2147483647;"),
    ];
    for (mask, places, wrong) in masks {
        for place in [places.start, (places.start + places.end) / 2, places.end - 1] {
            let text = changed(blt8, "noise_f16", mask, 2 * place, |line| line.replace(mask, wrong));
            noticed(blt8, &text, &format!("negative infinity, test {place} of{mask}"));
        }
    }
    for (line, text) in not_fresh(blt8) {
        noticed(blt8, &text, &format!("the last buffer is read although the step restarts, line {line}"));
    }
    // These mistakes find the key of a scheduled step by a wrong incarnation.
    let mask = |line: &str| line.replace("2097120", "8160");
    noticed(blt8, &changed(blt8, "noise_f16", ", 2097120;", 0, mask), "256 incarnations in a schedule");
    let joined = |line: &str| line.replace("add.s64", "or.b64");
    let address = changed(blt8, "noise_f16", &format!(", {};", masked(blt8)), 0, joined);
    noticed(blt8, &address, "the address of a key, joined by or");
    // The last word of a tail block that is used is the first of the row's name.
    let subtracts = |line: &str| line.replace("add.s32", "sub.s32");
    let last = changed(blt8, "noise_f16", &format!(", {};", lower_name(blt8)), 0, subtracts);
    noticed(blt8, &last, "the row's name in a tail");
    let ring = module("ring");
    // A ring wraps where `selp` chooses slot 0.
    let wraps_early = |line: &str| {
        let selp = Instruction::parse(0, line).expect("an instruction");
        let [slot, _, next, last] = &selp.operands[..] else { panic!("{line}") };
        format!("{line}\n\tsetp.eq.s32 \t{last}, {next}, 62;\n\t@{last} mov.u32 \t{slot}, 0;")
    };
    noticed(ring, &changed(ring, "noise_f16", ", 0, %r", 0, wraps_early), "a ring's slot from age 62 on");
    let smaller = |line: &str| line.replace(", 65536;", ", 65535;");
    noticed(ring, &changed(ring, "noise_f16", ", 65536;", 0, smaller), "limit of the smallest word");
    for pair in 0..8 {
        let forgets = |line: &str| line.replace(", 65535;", ", 65534;");
        let text = changed(ring, "noise_f16", ", 65535;", pair, forgets);
        noticed(ring, &text, &format!("limit of tail {pair}"));
        let raised = |line: &str| line.replace(", 65535;", ", 131071;");
        let text = changed(ring, "noise_f16", ", 65535;", pair, raised);
        noticed(ring, &text, &format!("raised limit of tail {pair}"));
    }
    for pair in 0..8 {
        let text = changed(ring, "noise_f16", "setp.gt.s32", pair, |line| line.replace(", -1;", ", -2;"));
        noticed(ring, &text, &format!("limit of angle {pair}"));
    }
}

/// Mistakes at the end of a replay show in the case made for them: a launch after the end, or counts of more than 32 bits.
#[test]
fn a_replay_that_does_not_end_is_noticed() {
    let _alone = DEVICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let modules = ptx::committed().unwrap();
    let module = modules.iter().find(|module| module.name == "blt0").expect("the module");
    let suite = Suite::<f32>::new("blt0").unwrap();
    let half = |line: &str| line.replace(".u64", ".u32");
    let none = |_: &str| String::new();
    let zero = |line: &str| line.replace("-9223372036854775808", "0");
    let never = |line: &str| line.replace("setp.eq", "setp.lt");
    let finish = |part, to: &dyn Fn(&str) -> String| changed(module, "finish", part, 0, to);
    let advance = |part, to: &dyn Fn(&str) -> String| changed(module, "advance", part, 0, to);
    let mistakes = [
        ("ended", "the counter is set back to 0", finish("mov.u64", &zero)),
        ("ended", "the counter stays", finish("[%rd2], %rd4", &none)),
        ("past the end", "an ended launch reads keys", changed(module, "noise_f32", "setp.eq.s16", 0, never)),
        ("replayed", "the count is not kept", finish("[%rd2+8]", &none)),
        ("leaping", "nobody wrote what stands for ended", finish("mov.u64", &none)),
        ("leaping", "half of the count is kept", finish("[%rd2+8]", &half)),
        ("leaping", "half of the count is read", finish("ld.global", &half)),
        ("ended", "half of the count is advanced", advance("ld.global", &half)),
        ("leaping", "half of the count is stored", advance("st.global", &half)),
    ];
    for (case, what, text) in mistakes {
        let verdict = suite.judge(2, &module.text, &text, false);
        println!("{what}: {verdict:?}");
        let Verdict::Killed(why) = verdict else { panic!("{what}: {verdict:?}") };
        assert!(why.starts_with(&format!("{case}: ")), "{what}: {why}");
    }
}
