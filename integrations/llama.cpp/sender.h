// Serves lines on a Unix socket (mode 0600) or a loopback port. Invariant: `put` never waits; what does not fit into the
// queue is counted and reported.
#pragma once

#include "lines.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

class Sender {
  public:
    // Listens and starts its threads, which live as long as the process. Empty if it works, else the reason.
    std::string start(const std::string & where, TextOf text);
    void describe(const Engine & engine);
    bool has_readers() const { return readers_count > 0; }
    void put(Step && step);

  private:
    static constexpr size_t QUEUE = 1024, READERS = 4;
    std::string listen_on(const std::string & where);
    void accept_readers();
    void write_steps();
    bool send_all(int fd, const std::string & text);

    int listener = -1;
    TextOf text_of;
    std::atomic<int> readers_count{0};
    std::atomic<uint64_t> dropped{0};
    std::mutex queue_mutex, readers_mutex;
    std::condition_variable news;
    std::deque<Step> queue;
    std::vector<int> readers;
    Engine engine;
    uint64_t began_us = 0, started_unix_ms = 0, seq = 0;
    std::map<std::string, uint32_t> rounds;
};

uint64_t now_us();
