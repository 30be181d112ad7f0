//! BEHAVIOUR.md names tests that exist, at the level that they are of, and all cases of the suite in C.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const DOCUMENT: &str = include_str!("../BEHAVIOUR.md");

/// The words in backquotes of a cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of the tables, each with the level that it lies under.
fn rows() -> Vec<(&'static str, [&'static str; 3])> {
    let (mut level, mut rows) = ("", Vec::new());
    for line in DOCUMENT.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            level = heading;
        }
        let Some(inner) = line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) else { continue };
        let cells: Vec<_> = inner.split('|').map(str::trim).collect();
        let cells: [&str; 3] = cells.try_into().unwrap_or_else(|_| panic!("not three columns: {line}"));
        if cells[0] != "behaviour" && !cells[0].starts_with("---") {
            rows.push((level, cells));
        }
    }
    rows
}

/// The cases of the suite, with their levels as the sources have them.
fn cases() -> BTreeMap<String, &'static str> {
    let mut cases = BTreeMap::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "c") {
            continue;
        }
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let Some((name, rest)) =
                line.trim_start().strip_prefix("{\"").and_then(|rest| rest.split_once("\", "))
            else {
                continue;
            };
            let levels =
                [("EARLY_ADOPTER,", "Early Adopter"), ("FUNCTIONAL,", "Functional"), ("FULL,", "Full")];
            if let Some((_, level)) = levels.iter().find(|(word, _)| rest.starts_with(word)) {
                cases.insert(name.to_owned(), *level);
            }
        }
    }
    assert!(cases.len() >= 156, "{} cases", cases.len());
    cases
}

/// All test functions in Rust sources below a folder.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                tests(&path, found);
            }
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(path).unwrap();
            let mut marked = false;
            for line in text.lines().map(str::trim) {
                if line == "#[test]" {
                    marked = true;
                } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| marked) {
                    found.insert(rest.split('(').next().unwrap_or_default().to_owned());
                    marked = false;
                }
            }
        }
    }
}

fn is_meant(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[test]
fn every_behaviour_has_a_test_that_exists() {
    let cases = cases();
    let mut functions = BTreeSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["../src", "../tests", "../../tests/tests", "src", "tests"] {
        tests(&root.join(folder), &mut functions);
    }
    for (_, [behaviour, in_c, in_rust]) in rows() {
        let (in_c, in_rust) = (names(in_c), names(in_rust));
        assert!(!in_c.is_empty() || !in_rust.is_empty(), "no test: {behaviour}");
        for pattern in in_c {
            assert!(cases.keys().any(|name| is_meant(pattern, name)), "no case {pattern}: {behaviour}");
        }
        for name in in_rust {
            assert!(functions.contains(name), "no test {name}: {behaviour}");
        }
    }
}

#[test]
fn every_case_stands_under_its_level() {
    let rows = rows();
    let under = |name: &str| -> BTreeSet<&str> {
        let meant =
            rows.iter().filter(|(_, [_, in_c, _])| names(in_c).iter().any(|pattern| is_meant(pattern, name)));
        meant.map(|(level, _)| *level).collect()
    };
    for (name, level) in cases() {
        let under = under(&name);
        assert!(!under.is_empty(), "{name} is of no behaviour");
        // A pattern may take cases of other levels along.
        let at_its_own =
            under.contains(level) || !rows.iter().any(|(_, [_, in_c, _])| names(in_c).contains(&&*name));
        assert!(at_its_own, "{name} is a case of {level}, and stands under {under:?}");
    }
}
