#include "lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

static bool is_utf8(const std::string & text) {
    size_t at = 0;
    while (at < text.size()) {
        const unsigned char first = text[at];
        const int more = first < 0x80 ? 0 : first >= 0xC2 && first < 0xE0 ? 1 : (first & 0xF0) == 0xE0 ? 2 : first >= 0xF0 && first < 0xF5 ? 3 : -1;
        if (more < 0 || at + more >= text.size()) {
            return false;
        }
        uint32_t code = more == 0 ? first : first & (0x3F >> more);
        for (int i = 1; i <= more; i++) {
            const unsigned char next = text[at + i];
            if ((next & 0xC0) != 0x80) {
                return false;
            }
            code = (code << 6) | (next & 0x3F);
        }
        if ((more == 2 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) || (more == 3 && (code < 0x10000 || code > 0x10FFFF))) {
            return false;
        }
        at += more + 1;
    }
    return true;
}

static std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (const unsigned char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += (char) c;
        } else if (c < 0x20 || c == 0x7F) {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", c);
            out += code;
        } else {
            out += (char) c;
        }
    }
    return out + "\"";
}

static std::string piece(int32_t id, const TextOf & text) {
    const auto [bytes, special] = text(id);
    std::string out = "{\"id\":" + std::to_string(id);
    if (is_utf8(bytes)) {
        out += ",\"text\":" + quoted(bytes);
    } else {
        out += ",\"bytes\":[";
        for (size_t i = 0; i < bytes.size(); i++) {
            out += (i ? "," : "") + std::to_string((unsigned char) bytes[i]);
        }
        out += "]";
    }
    return out + (special ? ",\"special\":true" : "");  // the closing brace is the caller's
}

static std::string number(float value) {
    value = std::isfinite(value) ? std::fmin(std::fmax(value, 0.0f), 1.0f) : 0.0f;
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    return text;
}

std::string header_line(const Engine & engine, uint64_t started_unix_ms) {
    const std::string kind = engine.drafter.find("ngram") != std::string::npos ? "ngram" : "draft-model";
    return "{\"seq\":0,\"at_us\":0,\"type\":\"started\",\"header\":{\"version\":4,\"program\":\"draftscope-tap 0.2.0\",\"model\":{\"name\":" +
           quoted(engine.model) + ",\"architecture\":\"\",\"file\":\"\",\"sha256\":null,\"layers\":0,\"d_model\":0,\"vocab\":" +
           std::to_string(engine.vocab) + ",\"context_length\":" + std::to_string(engine.context) +
           ",\"weight_bytes\":0,\"kv_bytes_per_token\":0},\"drafter\":{\"kind\":\"" + kind + "\",\"name\":" + quoted(engine.drafter) +
           ",\"sha256\":null,\"dtype\":\"not reported\",\"weight_bytes\":0,\"kv_bytes_per_token\":0,\"draft_vocab\":" +
           std::to_string(engine.vocab) + "},\"settings\":{\"draft_len\":0,\"drafter\":\"" + kind + "\",\"rule\":\"" + engine.rule +
           "\",\"sampling\":{},\"max_tokens\":1,\"baseline\":\"off\"},\"ctx_len\":" + std::to_string(engine.context) +
           ",\"device\":\"\",\"backend\":\"llama.cpp\",\"dtype\":\"\",\"threads\":0,\"started_unix_ms\":" + std::to_string(started_unix_ms) +
           ",\"capabilities\":{\"can_generate\":false},\"engine\":{\"name\":\"llama-server\",\"version\":\"\",\"abilities\":[]}}}\n";
}

static std::string head(const char * type, uint64_t & seq, uint64_t at_us) {
    return "{\"seq\":" + std::to_string(++seq) + ",\"at_us\":" + std::to_string(at_us) + ",\"type\":\"" + type + "\"";
}

std::string dropped_line(uint64_t rounds, uint64_t & seq, uint64_t at_us) {
    return head("dropped", seq, at_us) + ",\"rounds\":" + std::to_string(rounds) + "}\n";
}

std::string step_lines(const Step & step, uint32_t round, uint64_t & seq, uint64_t at_us, const TextOf & text) {
    const size_t k = std::min<size_t>(step.drafted.size(), 255);
    const size_t accepted = std::min(step.committed.empty() ? 0 : step.committed.size() - 1, k);
    const std::string tag = ",\"round\":" + std::to_string(round) + ",\"request\":" + quoted(step.request);
    std::string out = head("round_started", seq, at_us) + tag + ",\"base_len\":0,\"draft_len\":" + std::to_string(k) + "}\n";
    for (size_t i = 0; i < k; i++) {
        out += head("drafted", seq, at_us) + tag + ",\"index\":" + std::to_string(i) + ",\"token\":" + piece(step.drafted[i], text) + "}" +
               (i < step.q.size() ? ",\"q\":" + number(step.q[i]) : "") + ",\"top\":{\"top\":[],\"tail\":1.0},\"took_us\":" +
               std::to_string(step.draft_us / k) + "}\n";
    }
    if (!step.rows.empty()) {
        out += head("scored", seq, at_us) + tag + ",\"rows\":[";
        for (size_t r = 0; r < step.rows.size(); r++) {
            out += std::string(r ? "," : "") + "{\"top\":[";
            float tail = 1.0f;
            for (size_t i = 0; i < step.rows[r].size(); i++) {
                const auto & [id, p] = step.rows[r][i];
                tail -= p;
                out += std::string(i ? "," : "") + piece(id, text) + ",\"prob\":" + number(p) + "}";
            }
            out += "],\"tail\":" + number(tail) + "}";
        }
        out += "],\"verify_us\":" + std::to_string(step.verify_us) + ",\"sample_us\":" + std::to_string(step.sample_us) + "}\n";
    }
    out += head("verified", seq, at_us) + tag + ",\"judgements\":[";
    for (size_t i = 0; i < k; i++) {
        out += std::string(i ? "," : "") + "{" + (i < step.p.size() ? "\"p\":" + number(step.p[i]) + "," : "") +
               (i < step.q.size() ? "\"q\":" + number(step.q[i]) + "," : "") + "\"outcome\":\"" +
               (i < accepted ? "accepted" : i == accepted ? "rejected" : "not_reached") + "\"}";
    }
    out += "],\"next\":" + (accepted < step.committed.size() ? std::to_string(step.committed[accepted]) : "null") +
           ",\"next_kind\":\"" + (accepted == k ? "bonus" : "recovered") + "\"}\n";
    out += head("committed", seq, at_us) + tag + ",\"tokens\":[";
    for (size_t i = 0; i < step.committed.size(); i++) {
        out += std::string(i ? "," : "") + piece(step.committed[i], text) + "}";
    }
    return out + "],\"rollback_us\":0,\"clock_us\":0}\n";
}
