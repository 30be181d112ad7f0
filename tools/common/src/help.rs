//! For the tests of tools: whether what `--help` says is so, and how it looks.

use clap::Command;

/// Columns that help is laid out for.
const COLUMNS: usize = 100;

/// What is wrong with the texts after the options of a tool and its subcommands; nothing, in a tool that is right.
///
/// An example has to fit into a line, since it breaks otherwise, and has to be one that the tool takes. `called` are the
/// words by which it is called there (`["tools/demo/run"]`). What is not an example is not to be broken into lines by
/// hand: that is done where it is printed.
pub fn faults(tool: &Command, called: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    look(tool, tool, called, &mut faults);
    faults
}

fn look(tool: &Command, command: &Command, called: &[&str], faults: &mut Vec<String>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut before = "";
    for line in text.lines() {
        let is_broken = !before.is_empty() && !before.ends_with(['.', ':']) && !line.is_empty();
        if line.starts_with(' ') {
            if line.chars().count() > COLUMNS {
                faults.push(format!("wider than {COLUMNS} columns: {line}"));
            }
            before = "";
        } else {
            if is_broken {
                faults.push(format!("broken by hand: {before}"));
            }
            before = line;
        }
    }
    let joined: String = text.split("\\\n").map(|part| part.trim_start_matches(' ')).collect();
    for example in joined.lines().map(str::trim) {
        let Some(arguments) = called.iter().find_map(|name| example.strip_prefix(name)) else { continue };
        if !arguments.is_empty() && !arguments.starts_with(' ') {
            continue;
        }
        // Two spaces are before a remark.
        let arguments = if arguments.starts_with("  ") { "" } else { arguments };
        let words = ["tool".to_owned()].into_iter().chain(words(arguments));
        if let Err(e) = tool.clone().try_get_matches_from(words) {
            faults.push(format!("{example}\n{e}"));
        }
    }
    command.get_subcommands().for_each(|command| look(tool, command, called, faults));
}

/// The words of an example, as a shell would have them, up to a pipe, or to two spaces before a remark.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut spaces) = (Vec::new(), String::new(), None, 0);
    for character in text.trim_start().chars() {
        spaces = if character == ' ' && quote.is_none() { spaces + 1 } else { 0 };
        match (character, quote) {
            (_, Some(end)) if character == end => quote = None,
            (_, Some(_)) => word.push(character),
            ('\'' | '"', None) => quote = Some(character),
            (' ', None) if spaces > 1 => break,
            ('|' | '&', None) => break,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (_, None) => word.push(character),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn tool(after_help: &str) -> Command {
        Command::new("it").arg(Arg::new("nic").long("nic")).after_help(after_help.to_owned())
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("  a 'b  c' \"d\"e   a remark"), ["a", "b  c", "de"]);
        assert_eq!(words("--json | jq .mac"), ["--json"]);
    }

    #[test]
    fn what_is_wrong_is_found() {
        let good =
            "Examples:\n  One\n    it \\\n      --nic a\n  it   all\n\nA text that has a line.\nAnd another";
        assert_eq!(faults(&tool(good), &["it"]), [""; 0]);
        let long = format!("  it --nic {}", "x".repeat(COLUMNS));
        for wrong in ["  it a", "  it --nik a", "A text that is broken\ninto two", &long] {
            assert_eq!(faults(&tool(wrong), &["it"]).len(), 1, "{wrong}");
            let below = Command::new("it").subcommand(tool(wrong));
            assert!(!faults(&below, &["it"]).is_empty(), "{wrong}");
        }
    }
}
