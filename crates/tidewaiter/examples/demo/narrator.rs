//! Prints the story: numbered steps, commands as a person types them, and what they answer, in at most 100 columns.
//!
//! Colours appear on a terminal only, and not with `NO_COLOR`.

use std::cell::RefCell;

use anstream::{eprintln, println};
use anstyle::{AnsiColor, Style};

/// Columns of the whole.
const WIDTH: usize = 100;
const INDENT: &str = "   ";

const HEADING: Style = AnsiColor::Cyan.on_default().bold();
const COMMAND: Style = Style::new().bold();
const FAILURE: Style = AnsiColor::Red.on_default().bold();

/// The position in the story.
#[derive(Debug, Default)]
pub struct Narrator(RefCell<Progress>);

#[derive(Debug, Default)]
struct Progress {
    step: u32,
    heading: &'static str,
    over: bool,
}

impl Narrator {
    /// The next step begins.
    pub fn step(&self, heading: &'static str) {
        let mut progress = self.0.borrow_mut();
        progress.step += 1;
        progress.heading = heading;
        println!("\n{HEADING}{} {heading}{HEADING:#}", progress.step);
    }

    /// The story has ended; from here on a stop is no failure.
    pub fn over(&self) {
        self.0.borrow_mut().over = true;
    }

    /// Returns true if the story has ended.
    pub fn is_over(&self) -> bool {
        self.0.borrow().over
    }

    /// It ends here.
    pub fn failed(&self, error: &anyhow::Error) {
        let progress = self.0.borrow();
        let step = match progress.step {
            0 => "before its first step".to_owned(),
            step => format!("in step {step} ({})", progress.heading),
        };
        eprintln!("\n{FAILURE}The demo failed {step}:{FAILURE:#} {}", error.root_cause());
        for told in error.chain().collect::<Vec<_>>().iter().rev().skip(1) {
            eprintln!("\n{told}");
        }
    }
}

/// A sentence or two.
pub fn say(text: &str) {
    print_line(text, 0);
}

/// A command, as a person would type it; a pipe that is too long for one line goes on below.
pub fn command(command: &str) {
    let fits = command.len() + INDENT.len() + "$ ".len() <= WIDTH;
    let command = if fits {
        command.to_owned()
    } else {
        command.replacen(" | ", &format!(" |\n{INDENT}    "), 1)
    };
    println!("{INDENT}{COMMAND}$ {command}{COMMAND:#}");
}

/// Prints the output of a command.
pub fn output(output: &str) {
    print(output.trim_end());
}

/// A line outside the steps.
pub fn remark(text: &str) {
    println!("\n{text}");
}

/// Prints lines under a heading outside the steps.
pub fn section(heading: &str, text: &str) {
    println!("\n{HEADING}{heading}{HEADING:#}");
    print(text);
}

fn print(text: &str) {
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len() + 4;
        print_line(line.trim_end(), depth);
    }
}

/// In parts, broken between words, the later ones set in by so many columns.
fn print_line(line: &str, set_in: usize) {
    let mut rest = line.to_owned();
    while let Some(cut) = cut(&rest, set_in) {
        println!("{INDENT}{}", &rest[..cut]);
        rest = format!("{:set_in$}{}", "", rest[cut..].trim_start());
    }
    println!("{INDENT}{rest}");
}

/// Returns the place to break a line that is too long, after its indentation.
fn cut(line: &str, set_in: usize) -> Option<usize> {
    let width = WIDTH - INDENT.len();
    let head = line.get(..=width)?;
    head.rfind(' ').filter(|cut| *cut > set_in)
}
