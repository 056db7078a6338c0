//! Every link of the documentation leads somewhere, and the book (`make docs`) has every page.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The beginnings of links to files that are no part of the book.
const REPOSITORY: [&str; 2] = [
    "https://github.com/tidewaiter/tidewaiter/blob/main/",
    "https://github.com/tidewaiter/tidewaiter/tree/main/",
];

/// The pages about the code, to which they link. They are no part of the book.
const ABOUT_THE_CODE: [&str; 2] = ["docs/adding-a-provider.md", "docs/developing.md"];

const SUMMARY: &str = "docs/SUMMARY.md";

fn root() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap().canonicalize().unwrap()
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// The Markdown files, as paths below the repository.
fn pages() -> Vec<String> {
    let top = ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
    let mut pages = top.map(str::to_owned).to_vec();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().display());
            if entry.path().is_dir() {
                folders.push(path);
            } else if is_markdown(&path) {
                pages.push(path);
            }
        }
    }
    pages
}

fn is_markdown(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

/// The lines outside of blocks of code.
fn lines(page: &str) -> Vec<&str> {
    let mut is_code = false;
    let outside = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    outside.collect()
}

/// The targets of the links outside of code.
fn links(page: &str) -> Vec<String> {
    let prose: String = lines(page).join("\n").split('`').step_by(2).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The ids of the headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let headings = lines(page).into_iter().filter_map(|line| {
        let heading = line.strip_prefix('#')?.trim_start_matches('#');
        let kept = heading
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        let id: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let number = seen.entry(id.clone()).and_modify(|number| *number += 1).or_insert(0);
        Some(if *number == 0 { id } else { format!("{id}-{number}") })
    });
    headings.collect()
}

/// Returns the file that a link of the page names; `None` for other sites.
fn target(page: &str, path: &str) -> Option<PathBuf> {
    if let Some(path) = REPOSITORY.iter().find_map(|url| path.strip_prefix(url)) {
        return Some(root().join(path));
    }
    let page = root().join(page);
    match path {
        "" => Some(page),
        path if path.contains("://") => None,
        path => Some(page.parent().unwrap().join(path)),
    }
}

#[test]
fn every_link_leads_somewhere() {
    let (mut number, mut wrong) = (0, Vec::new());
    for page in pages() {
        for link in links(&read(&page)) {
            number += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let Some(target) = target(&page, path) else {
                continue;
            };
            if !target.exists() {
                wrong.push(format!("{page}: {link}: no such file"));
            } else if !anchor.is_empty() && !anchors(&fs::read_to_string(&target).unwrap()).contains(anchor) {
                wrong.push(format!("{page}: {link}: no such heading"));
            }
        }
    }
    assert!(number > 300, "only {number} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page_and_links_to_no_other() {
    let summary = links(&read(SUMMARY)).into_iter();
    let book: BTreeSet<String> = summary.map(|page| format!("docs/{page}")).collect();
    let is_for_users = |page: &String| {
        let is_left_out = page == SUMMARY || ABOUT_THE_CODE.contains(&page.as_str());
        page.starts_with("docs/") && !is_left_out
    };
    let expected: BTreeSet<String> = pages().into_iter().filter(is_for_users).collect();
    assert_eq!(book, expected);

    let mut wrong = Vec::new();
    for page in &book {
        for link in links(&read(page)) {
            let path = link.split('#').next().unwrap();
            if path.contains("://") {
                continue;
            }
            let target = target(page, path).unwrap().canonicalize().unwrap();
            let below = target.strip_prefix(root()).unwrap().display().to_string();
            let is_copied = below.starts_with("docs/") && target.is_file() && !is_markdown(&below);
            if !is_copied && !book.contains(&below) {
                wrong.push(format!("{page}: {link}: write {}{below}", REPOSITORY[0]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
