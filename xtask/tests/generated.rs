//! The generated files in the repository are what the code generates.

use std::process::Command;

#[test]
fn generated_files_are_up_to_date() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["generate", "--check"])
        .output()
        .expect("xtask runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
