// From a verification step to lines of draftscope's trace format (docs/trace-format.md). No sockets, no llama.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

// Most probable tokens of a row, and the probability of everything else.
using Row = std::vector<std::pair<int32_t, float>>;

struct Step {
    std::string request;
    std::vector<int32_t> drafted;
    std::vector<int32_t> committed;  // accepted drafts, then the target's own token
    std::vector<Row> rows;           // k + 1; empty if they were not read
    std::vector<float> p;            // the target's probability of each draft
    std::vector<float> q;            // the drafter's; empty without a distribution
    uint64_t draft_us = 0, verify_us = 0, sample_us = 0;
};

struct Engine {
    std::string model, drafter;
    int vocab = 0, context = 0;
    std::string rule = "exact";
};

// The text of a token; the flag says whether it is a control token.
using TextOf = std::function<std::pair<std::string, bool>(int32_t)>;

// Appends lines; `seq` counts them.
std::string header_line(const Engine & engine, uint64_t started_unix_ms);
std::string dropped_line(uint64_t rounds, uint64_t & seq, uint64_t at_us);
std::string step_lines(const Step & step, uint32_t round, uint64_t & seq, uint64_t at_us, const TextOf & text);
