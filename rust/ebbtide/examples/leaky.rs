// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that misbehaves on purpose; docs/operations.md finds each fault from outside.
//!   --leak   a session that times out is not erased
//!   --pin    a report frees its rows, and keeps small notes that were allocated between them
//!   --churn  a page is copied for each line that is added to it
//! Without one of these: all three. It serves itself, --rate requests a second (2000), until --requests or --seconds
//! are over, and then says how much it still holds.

use std::collections::{HashMap, VecDeque};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: ebbtide::Ebbtide = ebbtide::Ebbtide;

const REQUESTS_A_REPORT: u64 = 4000;
const ROWS_A_REPORT: usize = 40_000;
const ROWS_A_NOTE: usize = 20;
const NOTES_KEPT: usize = 2000;
const LINES_A_PAGE: usize = 40;
const LINE: [u8; 50] = [b'='; 50];
const LOGS_OUT: u64 = 4; // of so many sessions all but one; that times out

#[derive(Clone, Copy)]
struct Options {
    leak: bool,
    pin: bool,
    churn: bool,
    requests: u64,
    rate: u64,
    seconds: f64,
}

struct Session {
    _user: u64,
    _basket: [u8; 1992],
}
struct Row {
    _cells: [u8; 200],
}
struct Note {
    _query: u64,
    _text: [u8; 192],
}

struct Server {
    asked: Options,
    sessions: HashMap<u64, Box<Session>>,
    notes: VecDeque<Box<Note>>,
    buffer: Vec<u8>,
}

impl Server {
    fn serve(&mut self, request: u64) {
        self.remember_session(request);
        self.render_page();
        if request % LOGS_OUT != 0 {
            self.log_out(request);
        } else {
            self.time_out(request);
        }
        if request % REQUESTS_A_REPORT == 0 {
            self.run_report(request);
        }
    }

    #[inline(never)]
    fn remember_session(&mut self, user: u64) {
        let fresh = Box::new(Session {
            _user: user,
            _basket: [0; 1992],
        });
        self.sessions.insert(user, fresh);
    }

    fn log_out(&mut self, user: u64) {
        self.sessions.remove(&user);
    }

    fn time_out(&mut self, user: u64) {
        if !self.asked.leak {
            self.sessions.remove(&user);
        }
    }

    #[inline(never)]
    fn read_row() -> Box<Row> {
        Box::new(Row {
            _cells: [b'r'; 200],
        })
    }

    #[inline(never)]
    fn note_slow_query(&mut self, query: u64) {
        self.notes.push_back(Box::new(Note {
            _query: query,
            _text: [b'n'; 192],
        }));
        if self.notes.len() > NOTES_KEPT {
            self.notes.pop_front();
        }
    }

    fn run_report(&mut self, request: u64) {
        let mut rows = Vec::with_capacity(ROWS_A_REPORT);
        for at in 0..ROWS_A_REPORT {
            rows.push(Self::read_row());
            if self.asked.pin && at % ROWS_A_NOTE == 0 {
                self.note_slow_query(request);
            }
        }
    }

    #[inline(never)]
    fn render_page(&mut self) {
        self.buffer.clear();
        if !self.asked.churn {
            for _ in 0..LINES_A_PAGE {
                self.buffer.extend_from_slice(&LINE);
            }
            return;
        }
        let mut page: Box<[u8]> = Box::new([]);
        for _ in 0..LINES_A_PAGE {
            let mut longer = Vec::with_capacity(page.len() + LINE.len());
            longer.extend_from_slice(&page);
            longer.extend_from_slice(&LINE);
            page = longer.into_boxed_slice();
        }
    }

    /// Whether what is left is what the faults leave, and nothing else.
    fn is_as_asked(&self, served: u64) -> bool {
        let timed_out = served.div_ceil(LOGS_OUT) as usize;
        let noted = self.asked.pin && served > 0;
        self.sessions.len() == if self.asked.leak { timed_out } else { 0 }
            && self.notes.len() == if noted { NOTES_KEPT } else { 0 }
    }
}

/// None: an argument is none of ours.
fn read_options() -> Option<Options> {
    let mut asked = Options {
        leak: false,
        pin: false,
        churn: false,
        requests: u64::MAX,
        rate: 2000,
        seconds: 1e9,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--leak" => asked.leak = true,
            "--pin" => asked.pin = true,
            "--churn" => asked.churn = true,
            "--requests" => asked.requests = words.next()?.parse().ok()?,
            "--rate" => asked.rate = words.next()?.parse().ok()?,
            "--seconds" => asked.seconds = words.next()?.parse().ok()?,
            _ => return None,
        }
    }
    if !(asked.leak || asked.pin || asked.churn) {
        (asked.leak, asked.pin, asked.churn) = (true, true, true);
    }
    (asked.rate > 0).then_some(asked)
}

/// In a thread of its own, as servers do. Returns how many requests it has served.
fn run(server: &mut Server) -> u64 {
    let (asked, began) = (server.asked, Instant::now());
    let mut requests = 0;
    while requests < asked.requests && began.elapsed().as_secs_f64() < asked.seconds {
        let due = (began.elapsed().as_secs_f64() * asked.rate as f64) as u64;
        while requests <= due && requests < asked.requests {
            server.serve(requests);
            requests += 1;
        }
        thread::sleep(Duration::from_millis(5));
    }
    requests
}

fn main() -> ExitCode {
    let Some(asked) = read_options() else {
        eprintln!(
            "usage: leaky [--leak] [--pin] [--churn] [--requests N] [--seconds N] [--rate N]"
        );
        return ExitCode::from(2);
    };
    println!("ready");
    let mut server = Server {
        asked,
        sessions: HashMap::new(),
        notes: VecDeque::new(),
        buffer: Vec::with_capacity(LINES_A_PAGE * LINE.len()),
    };
    let requests =
        thread::scope(|scope| scope.spawn(|| run(&mut server)).join()).expect("it does not panic");
    let is_well = server.is_as_asked(requests);
    let told = if is_well {
        "what is left is as asked"
    } else {
        "WRONG"
    };
    let held = ebbtide::snapshot();
    let (live, free) = (held.live_bytes, held.free_bytes);
    println!("{requests} requests served: {told}; {live} bytes in use, {free} free in slabs");
    ExitCode::from(u8::from(!is_well))
}
