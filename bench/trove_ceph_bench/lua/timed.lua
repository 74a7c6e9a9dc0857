-- SPDX-License-Identifier: Apache-2.0
-- Runs one of sysbench's own scripts unchanged and records how long each transaction took.
--
-- sysbench 1.0 reports a single percentile. Here every thread counts its transactions in log-spaced
-- buckets, second by second, and appends each second to its own file as soon as the next second
-- begins, so that finished seconds survive a failed run. A line of the file:
--
--     <second> <transactions> <sum in ns> <longest in ns> <bucket>:<transactions> ...
--
-- Seconds are those of CLOCK_MONOTONIC in which the transaction *ended*; bucket b counts latencies
-- from 1.02^b up to 1.02^(b+1) microseconds. As in sysbench itself, a transaction that is retried
-- after an ignored error is one transaction, and its latency includes the retries. Recording costs
-- a third of a microsecond per transaction (with --mysql-dry-run, a million transactions took
-- 0.48 s of CPU time, and 0.14 s without this script).
--
-- Environment:
--   BENCH_SCRIPT   name of the script, such as oltp_read_write
--   BENCH_LATENCY  directory for the threads' files. A thread's file appears once the thread is
--                  connected; the thread then waits until a file "start" holds the second at which
--                  all threads of all instances begin together.

local ffi = require("ffi")

ffi.cdef [[
typedef struct { long sec; long nsec; } bench_timespec;
int clock_gettime(int clock, bench_timespec *time);
int usleep(unsigned int usec);
]]

local CLOCK_MONOTONIC = 1
local BUCKETS = 1200 -- 1.02^1200 us is five hours
local POLL_USEC = 20000
local PER_LOG = 1 / math.log(1.02)

local directory = os.getenv("BENCH_LATENCY")
require(os.getenv("BENCH_SCRIPT"))

local script_event, script_thread_init, script_thread_done = event, thread_init, thread_done

local clock = ffi.new("bench_timespec")
local buckets = ffi.new("uint32_t[?]", BUCKETS)
local second, transactions, sum, longest = 0, 0, 0, 0
local began
local file

local function now()
   ffi.C.clock_gettime(CLOCK_MONOTONIC, clock)
   return tonumber(clock.sec), tonumber(clock.nsec)
end

local function flush()
   if transactions == 0 then
      return
   end
   local words = {string.format("%d %d %.0f %.0f", second, transactions, sum, longest)}
   for bucket = 0, BUCKETS - 1 do
      if buckets[bucket] > 0 then
         words[#words + 1] = bucket .. ":" .. buckets[bucket]
      end
   end
   file:write(table.concat(words, " "), "\n")
   file:flush()
   ffi.fill(buckets, ffi.sizeof(buckets))
   transactions, sum, longest = 0, 0, 0
end

local function record(sec, duration)
   if sec ~= second then
      flush()
      second = sec
   end
   local bucket = math.floor(math.log(math.max(duration, 1000) / 1000) * PER_LOG)
   bucket = math.min(bucket, BUCKETS - 1)
   buckets[bucket] = buckets[bucket] + 1
   transactions = transactions + 1
   sum = sum + duration
   longest = math.max(longest, duration)
end

local function wait_for_start()
   local path = directory .. "/start"
   local start
   repeat
      local handle = io.open(path)
      if handle then
         start = handle:read("*n")
         handle:close()
      else
         ffi.C.usleep(POLL_USEC)
      end
   until start
   local sec, nsec = now()
   while sec < start do
      ffi.C.usleep(math.min((start - sec) * 1000000 - math.floor(nsec / 1000), 500000))
      sec, nsec = now()
   end
end

function thread_init(...)
   script_thread_init(...)
   file = assert(io.open(string.format("%s/thread-%d", directory, sysbench.tid), "w"))
   wait_for_start()
end

function event(...)
   if not began then
      local sec, nsec = now()
      began = sec * 1e9 + nsec
   end
   local ok, problem = pcall(script_event, ...)
   if not ok then
      if type(problem) ~= "table" or problem.errcode ~= sysbench.error.RESTART_EVENT then
         flush()
      end
      error(problem, 0)
   end
   local sec, nsec = now()
   record(sec, sec * 1e9 + nsec - began)
   began = nil
end

function thread_done(...)
   flush()
   file:close()
   script_thread_done(...)
end
