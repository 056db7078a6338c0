//! A view on a terminal that is redrawn in place. It is removed when it is cleared, and the cursor is never hidden.

use console::{Term, truncate_str};

/// The terminal, and what is drawn on it: the lines right above the cursor.
pub(crate) struct View {
    terminal: Term,
    drawn: Vec<String>,
}

impl View {
    /// None if the output is no terminal that supports it. `term` is the value of `TERM`; the terminal must be a
    /// buffered one.
    pub(crate) fn on(terminal: Term, term: Option<&str>) -> Option<Self> {
        let is_supported = terminal.is_term() && term.is_some_and(|term| term != "dumb");
        is_supported.then(|| Self {
            terminal,
            drawn: Vec::new(),
        })
    }

    /// Draws as many of the lines as fit.
    pub(crate) fn draw(&mut self, lines: Vec<String>) {
        let (rows, columns) = self.terminal.size();
        // A line that is too long would wrap, and lines that have scrolled off cannot be redrawn.
        let fit = lines.into_iter().take(usize::from(rows.saturating_sub(1)));
        let width = usize::from(columns.saturating_sub(1));
        self.replace(fit.map(|line| truncate_str(&line, width, "…").into_owned()).collect());
    }

    /// Removes the view.
    pub(crate) fn clear(&mut self) {
        self.replace(Vec::new());
    }

    /// Replaces the drawn lines in one write. When the terminal is gone, they cannot be delivered.
    fn replace(&mut self, lines: Vec<String>) {
        if self.drawn == lines {
            return;
        }
        // The terminal has echoed `^C` at the cursor.
        let _ = self.terminal.clear_line();
        let _ = self.terminal.clear_last_lines(self.drawn.len());
        for line in &lines {
            let _ = self.terminal.write_line(line);
        }
        let _ = self.terminal.flush();
        self.drawn = lines;
    }
}
