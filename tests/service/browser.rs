//! The console in headless Chromium, as operators use it. Where there is no Chromium, each test is skipped with a line that names it.
mod chromium;
mod colours;
mod drills;
mod layouts;
mod login_link;
mod operator_page;
mod recovery;
mod updates;
