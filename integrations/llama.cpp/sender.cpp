#include "sender.h"

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

uint64_t now_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static std::string reason(const std::string & what) { return what + ": " + strerror(errno); }

std::string Sender::listen_on(const std::string & given) {
    std::string where = given;
    const bool is_tcp = where.rfind("tcp:", 0) == 0;
    if (is_tcp || where.rfind("unix:", 0) == 0) {
        where = where.substr(is_tcp ? 4 : 5);
    }
    const size_t colon = where.rfind(':');
    const std::string port = colon == std::string::npos ? "" : where.substr(colon + 1);
    const bool has_port = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos && port.size() < 6;
    if (is_tcp || (given == where && has_port && where.find('/') == std::string::npos)) {
        std::string host = where.substr(0, colon);
        host = host == "localhost" ? "127.0.0.1" : host;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons((uint16_t) std::strtoul(port.c_str(), nullptr, 10));
        if (!has_port || inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1 || (ntohl(address.sin_addr.s_addr) >> 24) != 127) {
            return "only a loopback address is served, such as 127.0.0.1:7070";
        }
        const int yes = 1;
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(listener, (sockaddr *) &address, sizeof address) != 0) {
            return reason("cannot listen at " + given);
        }
    } else {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (where.size() >= sizeof address.sun_path) {
            return "the path is too long for a socket";
        }
        strcpy(address.sun_path, where.c_str());
        struct stat found{};
        if (lstat(where.c_str(), &found) == 0) {
            if (!S_ISSOCK(found.st_mode)) {
                return where + " exists and is no socket";
            }
            const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            const bool is_alive = connect(probe, (sockaddr *) &address, sizeof address) == 0;
            close(probe);
            if (is_alive) {
                return "another process listens on " + where;
            }
            unlink(where.c_str());
        }
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        fchmod(listener, 0600);  // on Linux the file gets this mode from its beginning
        if (bind(listener, (sockaddr *) &address, sizeof address) != 0 || chmod(where.c_str(), 0600) != 0) {
            return reason("cannot listen at " + given);
        }
    }
    return listen(listener, READERS) == 0 ? "" : reason("cannot listen at " + given);
}

std::string Sender::start(const std::string & where, TextOf text) {
    const std::string failed = listen_on(where);
    if (!failed.empty()) {
        return failed;
    }
    text_of = std::move(text);
    began_us = now_us();
    started_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::thread([this] { accept_readers(); }).detach();
    std::thread([this] { write_steps(); }).detach();
    return "";
}

void Sender::describe(const Engine & known) {
    std::lock_guard<std::mutex> lock(readers_mutex);
    engine = known;
}

void Sender::put(Step && step) {
    {
        std::lock_guard<std::mutex> lock(queue_mutex);
        if (queue.size() >= QUEUE) {
            dropped++;
            return;
        }
        queue.push_back(std::move(step));
    }
    news.notify_one();
}

bool Sender::send_all(int fd, const std::string & text) {
    size_t at = 0;
    while (at < text.size()) {
        const ssize_t sent = send(fd, text.data() + at, text.size() - at, MSG_NOSIGNAL);
        if (sent > 0) {
            at += sent;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

void Sender::accept_readers() {
    while (true) {
        const int reader = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (reader < 0) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            return;
        }
        const timeval patience{2, 0};  // a reader that takes nothing for so long is disconnected
        setsockopt(reader, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        std::lock_guard<std::mutex> lock(readers_mutex);
        if (readers.size() >= READERS || !send_all(reader, header_line(engine, started_unix_ms))) {
            close(reader);
            continue;
        }
        readers.push_back(reader);
        readers_count = (int) readers.size();
    }
}

void Sender::write_steps() {
    uint64_t reported = 0;
    while (true) {
        Step step;
        {
            std::unique_lock<std::mutex> lock(queue_mutex);
            news.wait(lock, [this] { return !queue.empty(); });
            step = std::move(queue.front());
            queue.pop_front();
        }
        if (rounds.size() > 4096) {
            rounds.clear();
        }
        const uint64_t at = now_us() - began_us;
        std::string text = step_lines(step, ++rounds[step.request], seq, at, text_of);
        if (dropped != reported) {
            reported = dropped;
            text += dropped_line(reported, seq, at);
        }
        std::lock_guard<std::mutex> lock(readers_mutex);
        for (size_t i = 0; i < readers.size();) {
            if (send_all(readers[i], text)) {
                i++;
            } else {
                close(readers[i]);
                readers.erase(readers.begin() + i);
            }
        }
        readers_count = (int) readers.size();
    }
}
